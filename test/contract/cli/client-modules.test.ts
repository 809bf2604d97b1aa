import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'

const root = fileURLToPath(new URL('../../../', import.meta.url))

/** Imports files of the product in a process of its own. @returns the addresses of all modules that were loaded. */
function loadedBy(...files: string[]): string[] {
  const code = `
    import { registerHooks } from 'node:module'
    const loaded = []
    registerHooks({ load(url, context, next) { loaded.push(url); return next(url, context) } })
    for (const file of ${JSON.stringify(files)}) await import('${root}' + file)
    console.log(JSON.stringify(loaded))`
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', code], { encoding: 'utf8' })
  return JSON.parse(output) as string[]
}

const isHeavy = (url: string): boolean =>
  /node_modules\/(?!commander\/)|src\/(?:settings|config|store|core|http)\b/.test(url)

describe('client commands', () => {
  it('start without loading the settings or the server, which take most of a second', () => {
    const names = ['program', 'run', 'runs', 'transfer', 'threads', 'status', 'completion']
    const loaded = loadedBy(...names.map((name) => `src/cli/${name}.ts`))
    expect(loaded.filter(isHeavy)).toEqual([])
    expect(loaded.length).toBeGreaterThan(names.length)
    expect(loadedBy('src/cli/serve.ts').some(isHeavy)).toBe(true)
  })
})
