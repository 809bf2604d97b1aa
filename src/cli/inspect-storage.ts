import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { monotonicMs } from '../base/clock.ts'
import { StartRefused } from '../base/errors.ts'
import { probeStorage } from '../storage/probe.ts'
import type { Check } from './inspect.ts'

/**
 * Looks at this machine as a place for threads: makes one, mounts it, hands it to another user namespace.
 * @param home on the disk that holds the storage; nothing stays in it. To be called in a mount namespace of one's own.
 */
export async function inspectStorage(home: string): Promise<Check> {
  const name = 'threads'
  const scratch = await mkdtemp(join(home, 'doctor-'))
  const startedMs = monotonicMs()
  try {
    await probeStorage(scratch)
    const ms = Math.round(monotonicMs() - startedMs)
    return { name, ok: true, detail: `a filesystem was made, mounted and handed over in ${ms} ms` }
  } catch (error) {
    if (!(error instanceof StartRefused)) throw error
    const remedy = `${error.remedy} Or serve without threads: --storage none.`
    return { name, ok: false, detail: error.message, remedy }
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}
