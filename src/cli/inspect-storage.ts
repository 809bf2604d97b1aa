import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { monotonicMs } from '../base/clock.ts'
import { StartRefused } from '../base/errors.ts'
import { probeStorage } from '../storage/probe.ts'
import type { Check } from './inspect.ts'

/**
 * Checks whether this machine can store threads: creates a filesystem, mounts it, and attaches it to another user
 * namespace. Must be called in a separate mount namespace.
 * @param home directory on the disk of the storage; nothing is left in it.
 */
export async function inspectStorage(home: string): Promise<Check> {
  const name = 'threads'
  const scratch = await mkdtemp(join(home, 'doctor-'))
  const startedMs = monotonicMs()
  try {
    await probeStorage(scratch)
    const ms = Math.round(monotonicMs() - startedMs)
    return { name, ok: true, detail: `a filesystem was created, mounted and attached in ${ms} ms` }
  } catch (error) {
    if (!(error instanceof StartRefused)) throw error
    const remedy = `${error.remedy} Or disable threads: --storage none.`
    return { name, ok: false, detail: error.message, remedy }
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}
