import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openApiDocument } from '../../src/http/openapi/document.ts'
import { operations } from '../../src/http/operations.ts'
import { install, installWithinMs, isAvailable, type Packages } from '../support/installed-packages.ts'

const execute = promisify(execFile)
const compiler = join(import.meta.dirname, '../../node_modules/.bin/tsc')
const generators: Packages = {
  from: 'npm',
  specs: ['openapi-typescript@7.13.0', 'openapi-fetch@0.17.0', '@hey-api/openapi-ts@0.99.0', 'typescript@5.9.3'],
}
const isReachable = await isAvailable(generators)

/** Uses every kind of ending with its own fields, so that it compiles only with a discriminated union. */
const endingInWords = `
export function inWords(ending: Ending): string {
  switch (ending.kind) {
    case 'exited':
      return \`code \${ending.code.toFixed()}\`
    case 'signaled':
      return ending.signal.toLowerCase()
    case 'timed_out':
      return \`\${ending.limit_ms.toFixed()} ms\`
    case 'out_of_memory':
    case 'output_limit':
    case 'disk_quota':
      return \`\${ending.limit_bytes.toFixed()} bytes\`
    case 'failed':
      return ending.reason
    case 'cancelled':
    case 'shutdown':
      return ending.kind
  }
}
export function textOf(line: ExecuteLine): string {
  if (line.type === 'stdout' || line.type === 'stderr') return line.data ?? ''
  return line.type === 'result' ? inWords(line.ending) : ''
}
`

const fetchProgram = `
import createClient from 'openapi-fetch'
import type { components, paths } from './schema.d.ts'
type Ending = components['schemas']['Ending']
type ExecuteLine = components['schemas']['ExecuteLine']
${endingInWords}
const client = createClient<paths, 'application/json'>({ baseUrl: 'http://127.0.0.1:5555' })
export async function run(code: string): Promise<string> {
  const { data, error } = await client.POST('/v1/sandbox/execute', { body: { code, language: 'python' } })
  if (error) return \`\${error.message} \${error.retry ?? ''}\`
  return data && 'stdout' in data ? \`\${data.stdout}\${inWords(data.ending)}\` : (data?.trace_id ?? '')
}
export async function files(): Promise<components['schemas']['File'][]> {
  const { data } = await client.POST('/v1/files/list', { body: { source: 'thread', id: 'a' } })
  return data?.files ?? []
}
export async function runs(): Promise<(Ending | null)[]> {
  const { data } = await client.GET('/v1/executions', { params: { query: { status: 'failed', limit: 10 } } })
  return data?.data.map(({ ending }) => ending) ?? []
}
`

const sdkProgram = `
import { execute, getThread, listExecutions, listFiles } from './sdk/index.ts'
import type { Ending, ExecuteLine, Execution, File, Link, Thread } from './sdk/index.ts'
${endingInWords}
const baseUrl = 'http://127.0.0.1:5555'
export async function run(code: string): Promise<string> {
  const { data, error } = await execute({ baseUrl, body: { code, language: 'python' } })
  if (error) return error.message
  return data && 'stdout' in data && 'ending' in data ? \`\${data.stdout}\${inWords(data.ending)}\` : ''
}
export async function files(): Promise<File[]> {
  return (await listFiles({ baseUrl, body: { source: 'thread', id: 'a' } })).data?.files ?? []
}
export async function busy(id: string): Promise<boolean | undefined> {
  const thread: Thread | undefined = (await getThread({ baseUrl, path: { id } })).data
  return thread?.busy
}
export async function runs(): Promise<(string | null)[]> {
  const { data } = await listExecutions({ baseUrl, query: { status: 'failed', limit: 10 } })
  return data?.data.map(({ thread_id }) => thread_id) ?? []
}
export type Known = [Execution, Link]
`

describe.skipIf(!isReachable)('a TypeScript client that is generated from the OpenAPI document', () => {
  let packages: string
  /** Inside of the installation, so that the programs find its packages. */
  let directory: string

  beforeAll(async () => {
    packages = await install(generators)
    directory = await mkdtemp(join(packages, 'client-'))
    await writeFile(join(directory, 'openapi.json'), JSON.stringify(openApiDocument('0.0.0-test', operations)))
  }, installWithinMs)
  afterAll(() => rm(directory, { recursive: true, force: true }))

  const generate = (program: string, ...words: string[]) =>
    execute(process.execPath, [join(packages, 'node_modules', program), ...words], { cwd: directory })

  /** Returns what the compiler reports. */
  async function problemsOf(name: string, program: string): Promise<string> {
    await writeFile(join(directory, name), program)
    const flags = ['--noEmit', '--strict', '--skipLibCheck', '--allowImportingTsExtensions', '--target', 'es2022']
    const modules = ['--module', 'esnext', '--moduleResolution', 'bundler', '--lib', 'es2023,dom,dom.iterable']
    const { stdout } = await execute(compiler, [...flags, ...modules, '--types', '', '--ignoreConfig', name], {
      cwd: directory,
    }).catch((error: { stdout: string }) => error)
    return stdout
  }

  it('compiles with openapi-typescript and openapi-fetch', async () => {
    await generate('openapi-typescript/bin/cli.js', 'openapi.json', '-o', 'schema.d.ts')
    expect(await problemsOf('fetch.ts', fetchProgram)).toBe('')
    const wrong = fetchProgram.replace('ending.limit_ms.toFixed()', 'ending.code.toFixed()')
    expect(await problemsOf('fetch-wrong.ts', wrong)).toContain("'code' does not exist")
  })

  it('compiles with @hey-api/openapi-ts', async () => {
    const plugins = ['--plugins', '@hey-api/typescript', '@hey-api/sdk', '@hey-api/client-fetch']
    await generate('@hey-api/openapi-ts/bin/run.js', '-i', 'openapi.json', '-o', 'sdk', ...plugins)
    expect(await problemsOf('sdk.ts', sdkProgram)).toBe('')
    const wrong = sdkProgram.replace('ending.limit_ms.toFixed()', 'ending.code.toFixed()')
    expect(await problemsOf('sdk-wrong.ts', wrong)).toContain("'code' does not exist")
  })
})
