/**
 * The engine works in a private mount namespace, which a process cannot create for itself in Node. A test file of it wraps
 * its content in `inPrivateMounts`: started normally, it runs itself again below `unshare` and reports that result.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { it } from 'vitest'
import { requireOwnMountNamespace } from '../../src/engine/mounts.ts'

const root = join(import.meta.dirname, '../..')

export function inPrivateMounts(file: string, define: () => void): void {
  if (process.getuid?.() !== 0) {
    it.skip('needs root', () => undefined)
    return
  }
  if (isPrivate()) define()
  else it('holds in a mount namespace of its own', ({ signal }) => runBelowUnshare(file, signal), 600_000)
}

function isPrivate(): boolean {
  try {
    requireOwnMountNamespace()
    return true
  } catch {
    return false
  }
}

/** @param signal ends all remaining processes, so that a retry is not affected by the first attempt. */
async function runBelowUnshare(file: string, signal: AbortSignal): Promise<void> {
  const vitest = join(root, 'node_modules/vitest/vitest.mjs')
  const words = [process.execPath, vitest, 'run', file, '--root', root, '--reporter=tap-flat']
  const temporary = mkdtempSync(join(tmpdir(), 'gb-'))
  chmodSync(temporary, 0o711) // The users of slots access it.
  const child = spawn('unshare', ['--mount', '--propagation', 'private', '--', ...words], {
    detached: true, // Its process group is its own.
    env: { ...process.env, TMPDIR: temporary },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const stop = () => endGroup(child)
  signal.addEventListener('abort', stop)
  try {
    const said = Promise.all([text(child.stdout), text(child.stderr)])
    const [code] = await once(child, 'close')
    if (code !== 0) throw new Error((await said).join('\n'))
  } finally {
    signal.removeEventListener('abort', stop)
    stop()
    // The mounts below it are gone with the namespace.
    rmSync(temporary, { recursive: true, force: true })
  }
}

function endGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch (error) {
    if (!(error instanceof Error && Reflect.get(error, 'code') === 'ESRCH')) throw error
  }
}
