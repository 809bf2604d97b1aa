import { execFile } from 'node:child_process'
import { chmodSync, cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Glovebox, Place } from '../support/glovebox.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const page = readFileSync(join(root, 'docs/extending.md'), 'utf8')

/** Returns the code blocks of one example of the page, in order. */
function blocksOf(title: string): string[] {
  const section = page.split('\n## ').find((text) => text.startsWith(`${title}\n`)) ?? ''
  return [...section.matchAll(/ {3}```ts\n([\s\S]*?) {3}```/g)].map(([, code = '']) => code.replaceAll(/^ {3}/gm, ''))
}

function expectMentioned(path: string): void {
  if (!page.includes(`\`${path}\``)) throw new Error(`the page does not mention ${path}`)
}

/** A copy of the source code, to which the examples are applied. */
class Copy {
  readonly directory = mkdtempSync(join(tmpdir(), 'glovebox-extending-'))

  /** The source files that an example created or edited. */
  readonly touched = new Set<string>()

  constructor() {
    chmodSync(this.directory, 0o755)
    for (const path of ['docs', 'src', 'guest', 'bin', 'package.json', 'tsconfig.json'])
      cpSync(join(root, path), join(this.directory, path), { recursive: true })
    for (const path of ['node_modules', 'build']) symlinkSync(join(root, path), join(this.directory, path))
  }

  /** @param folder ends with a slash. */
  create(folder: string, file: string, text: string): void {
    expectMentioned(folder)
    expectMentioned(file)
    this.touched.add(folder + file)
    writeFileSync(join(this.directory, folder, file), text)
  }

  /** Replaces the one place in a file that matches. */
  edit(path: string, place: RegExp, replacement: (found: string) => string): void {
    expectMentioned(path)
    const text = readFileSync(join(this.directory, path), 'utf8')
    if (!place.test(text)) throw new Error(`${path} does not contain ${place}`)
    this.touched.add(path)
    writeFileSync(join(this.directory, path), text.replace(place, replacement))
  }

  /** Adds an import, and the name that it imports to a list. @param end the end of the list. */
  add(path: string, importLine: string, end: RegExp, entry: (name: string) => string): void {
    const [, name = ''] = /^import \{ (\w+) \}/.exec(importLine) ?? []
    this.edit(path, /^/, () => importLine)
    this.edit(path, end, (found) => entry(name) + found)
  }

  remove(): void {
    rmSync(this.directory, { recursive: true })
  }
}

describe('the examples of docs/extending.md', () => {
  const copy = new Copy()
  const place = new Place(join(copy.directory, 'bin/glovebox'))
  let server: Glovebox
  let filesOfNoun: number

  beforeAll(async () => {
    const [tool = '', toolImport = ''] = blocksOf('Your first tool')
    copy.create('src/tools/files/', 'volumes-list.ts', tool)
    copy.add('src/tools/catalog.ts', toolImport, /(?<= {2}tools: \[)/, (name) => `${name}, `)

    const [operation = '', operationImport = ''] = blocksOf('Your first REST operation')
    copy.create('src/http/rest/', 'thread-executions.ts', operation)
    copy.add('src/http/operations.ts', operationImport, /^\]$/m, (name) => `  ...${name},\n`)

    const [store = '', noun = '', step = '', capability = '', core = '', ...rest] =
      blocksOf('Your first noun with a table')
    const [coreImport = '', property = '', value = '', operations = '', operationsImport = ''] = rest
    copy.touched.clear()
    copy.create('src/store/', 'notes.ts', store)
    copy.add('src/store/nouns.ts', noun, /(?<=^const nouns = \{\n)/m, (name) => `  ${name},\n`)
    copy.add('src/store/migrations.ts', step, /^\]$/m, (name) => `  ${name},\n`)
    copy.edit('src/base/capabilities.ts', /^\] as const$/m, (end) => capability + end)
    copy.create('src/core/storage/', 'notes.ts', core)
    copy.edit('src/core/core.ts', /^/, () => coreImport)
    copy.edit('src/core/core.ts', /(?<=^export interface Core extends [^\n]*\{\n)/m, () => property)
    copy.edit('src/core/core.ts', /(?<=^ {2}return \{\n)/m, () => value)
    copy.create('src/http/rest/', 'notes.ts', operations)
    copy.add('src/http/operations.ts', operationsImport, /^\]$/m, (name) => `  ...${name},\n`)
    filesOfNoun = copy.touched.size

    const [setting = '', use = ''] = blocksOf('Your first setting')
    copy.edit('src/settings.ts', /(?<=^const server = \{\n)/m, () => setting)
    copy.edit('src/cli/front.ts', /^ *bindings: .*\n/m, () => use)

    server = await place.start('--instance-name', 'blue')
  })
  afterAll(async () => {
    await place.remove()
    copy.remove()
  })

  it('compile', { timeout: 600_000 }, async () => {
    const tsc = join(root, 'node_modules/typescript/bin/tsc')
    const compiled = promisify(execFile)(process.execPath, [tsc, '--noEmit', '-p', copy.directory])
    const { stdout } = await compiled.catch((error: { stdout: string }) => error)
    expect(stdout).toBe('')
  })

  it('add a tool that is listed and can be called', async () => {
    const call = async (method: string, params: object) => {
      const response = await fetch(`${server.url}/mcp`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
      })
      return ((await response.json()) as { result: Record<string, unknown> }).result
    }
    const { tools } = await call('tools/list', {})
    expect((tools as { name: string }[]).map(({ name }) => name)).toContain('volumes_list')
    expect(await call('tools/call', { name: 'volumes_list', arguments: { limit: 5 } })).toMatchObject({
      content: [{ type: 'text', text: 'No volumes.' }],
    })
  })

  it('add a REST operation that is served and described', async () => {
    const response = await fetch(`${server.url}/v1/threads/notes/executions?limit=5`)
    expect([response.status, await response.json()]).toEqual([200, { data: [], next_cursor: null }])
    const description = await (await fetch(`${server.url}/openapi.json`)).json()
    expect(description).toHaveProperty(['paths', '/v1/threads/{id}/executions', 'get'])
  })

  it('add a noun with a table, in at most 8 files, whose rows are stored', async () => {
    expect(filesOfNoun).toBeLessThanOrEqual(8)
    const url = `${server.url}/v1/notes/todo`
    expect((await fetch(url)).status).toBe(404)
    const headers = { 'content-type': 'application/json' }
    const put = await fetch(url, { method: 'PUT', headers, body: JSON.stringify({ text: 'water the plants' }) })
    expect(put.status).toBe(204)
    expect(await (await fetch(url)).json()).toEqual({ text: 'water the plants' })
  })

  it('add a setting that has a flag and an effect', () => {
    const lines = server.log.filter((line) => line.process === 'front')
    expect(new Set(lines.map(({ instance }) => instance))).toEqual(new Set(['blue']))
  })
})
