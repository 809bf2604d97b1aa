/** Attack programs, and how to run them without isolation. */
import { execFile, execFileSync } from 'node:child_process'
import { mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)
const sources = join(import.meta.dirname, '../security/attacks')
const out = join(import.meta.dirname, '../../build/attacks')

/**
 * Compiles test/security/attacks/<name>.c.
 * @param how `static` for a replacement of the guest, whose root contains no libraries.
 * @param defines preprocessor names with their values.
 * @returns the path of the program.
 */
export function compile(
  name: string,
  how: 'dynamic' | 'static' = 'dynamic',
  defines: Readonly<Record<string, string>> = {},
): string {
  mkdirSync(out, { recursive: true })
  const path = join(out, [name, ...Object.values(defines)].join('-'))
  const fresh = `${path}.${process.pid}`
  const words = Object.entries(defines).map(([key, text]) => `-D${key}=${JSON.stringify(text)}`)
  const flags = ['-std=gnu11', '-O1', '-Wall', '-Wextra', '-Werror', ...(how === 'static' ? ['-static'] : []), ...words]
  execFileSync('cc', [...flags, '-o', fresh, join(sources, `${name}.c`)])
  renameSync(fresh, path) // two test files may compile the same program at the same time
  return path
}

/** Separate namespaces, so that an attack that runs as root outside a sandbox harms nothing else. */
const apart = ['--mount', '--propagation', 'private', '--uts', '--ipc', '--net', '--pid', '--fork', '--kill-child']

export interface Outside {
  stdout: string
  stderr: string
  code: number
}

/** Runs a program as root with every privilege and without our isolation, but in separate namespaces. */
export async function outside(program: string, ...words: string[]): Promise<Outside> {
  return plain('unshare', ...apart, '--mount-proc', program, ...words)
}

/** Runs a program as a plain process on this host. */
export async function plain(program: string, ...words: string[]): Promise<Outside> {
  try {
    const { stdout, stderr } = await execute(program, words, { timeout: 30_000, maxBuffer: 64 * 1024 * 1024 })
    return { stdout, stderr, code: 0 }
  } catch (error) {
    const { stdout, stderr, code } = error as { stdout?: string; stderr?: string; code?: number | string }
    if (typeof code === 'string' || stdout === undefined) throw error
    return { stdout, stderr: stderr ?? '', code: code ?? -1 }
  }
}
