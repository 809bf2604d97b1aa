/**
 * The engine works in a mount namespace of its own, which a process cannot give itself in Node. A test file of it wraps
 * its content in `inPrivateMounts`: started as it is, it runs itself once more below `unshare` and reports that.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { it } from 'vitest'
import { requireOwnMountNamespace } from '../../src/engine/mounts.ts'

const root = join(import.meta.dirname, '../..')

export function inPrivateMounts(file: string, define: () => void): void {
  if (process.getuid?.() !== 0) {
    it.skip('needs root', () => undefined)
    return
  }
  if (isPrivate()) define()
  else it('holds in a mount namespace of its own', () => runBelowUnshare(file), 240_000)
}

function isPrivate(): boolean {
  try {
    requireOwnMountNamespace()
    return true
  } catch {
    return false
  }
}

async function runBelowUnshare(file: string): Promise<void> {
  const vitest = join(root, 'node_modules/vitest/vitest.mjs')
  const words = [process.execPath, vitest, 'run', file, '--root', root, '--reporter=tap-flat']
  try {
    await promisify(execFile)('unshare', ['--mount', '--propagation', 'private', '--', ...words])
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string }
    throw new Error(`${stdout}\n${stderr}`)
  }
}
