import { execFileSync } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { putFile } from './generated-files.ts'

/** Where images have the programs that keep the state of code in sandboxes; core starts them there. */
const kernelsDir = 'opt/glovebox/kernels'

const source = new URL('../../../guest/kernels/', import.meta.url)

/** Copies the kernels of all languages into the root of an image. */
export function writeKernels(root: string): void {
  for (const language of ['python', 'node', 'bash'])
    for (const name of readdirSync(new URL(language, source)))
      if (/[.](?:py|cjs|sh)$/.test(name))
        putFile(join(root, kernelsDir, language, name), readFileSync(new URL(`${language}/${name}`, source), 'utf8'))
  bytecode ??= compilePython(`${root}-kernels-`)
  for (const [name, bytes] of bytecode) putFile(join(root, kernelsDir, 'python/__pycache__', name), bytes)
}

let bytecode: ReadonlyMap<string, Buffer> | undefined

/**
 * Compiling is a part of the start of each kernel. An interpreter of another version ignores these files.
 * @param prefix of a directory that exists meanwhile. A service may have no `/tmp` that it can write to.
 */
function compilePython(prefix: string): ReadonlyMap<string, Buffer> {
  const scratch = mkdtempSync(prefix)
  try {
    cpSync(fileURLToPath(new URL('python', source)), scratch, { recursive: true })
    const compile = ['-I', '-m', 'compileall', '-q', '--invalidation-mode', 'unchecked-hash', scratch]
    execFileSync('/usr/bin/python3', compile, { env: { PATH: '/usr/bin:/bin' }, stdio: 'ignore', timeout: 30_000 })
    const compiled = join(scratch, '__pycache__')
    return new Map(readdirSync(compiled).map((name) => [name, readFileSync(join(compiled, name))]))
  } catch {
    return new Map() // Kernels compile themselves then.
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}
