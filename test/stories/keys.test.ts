import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { callTool, execute, follow, post } from '../support/calls.ts'
import { type Glovebox, Place, program, until } from '../support/glovebox.ts'
import { manageKeys, newKey as newKeyIn } from '../support/keys.ts'
import { slotsOf } from '../support/machine.ts'

const place = new Place()
const config = join(place.directory, 'glovebox.yaml')
const words = ['--no-prewarm-jails', '--no-dev', '--config', config, '--trusted-proxies', '127.0.0.1']
let server: Glovebox
beforeAll(async () => {
  writeFileSync(config, 'profiles: { small: { languages: [bash], default_language: bash, timeout_max_s: 60 } }\n')
  server = await place.start(...words)
})
afterAll(() => place.remove())

const keys = (words: string[], as: string[] = []) => manageKeys(place, [...words, '--config', config], as)
const newKey = (...words: string[]) => newKeyIn(place, ...words, '--config', config)

/** Each call has its own client address, so that failures in one test do not count in another. */
let calls = 0
const run = (code: string, headers: object, language = 'bash') =>
  post<Record<string, unknown>>(
    `${server.url}/v1/sandbox/execute`,
    { language, code },
    { 'x-forwarded-for': `198.51.100.${++calls}`, ...headers },
  )

describe('glovebox keys', () => {
  it('creates a key that works immediately, and prints only the key on standard output', async () => {
    const { code, stdout } = await keys(['create', '--org', 'acme', '--name', 'laptop'])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^sk-us-[A-Za-z0-9_-]{43}\n$/)
    expect(await run('echo hello', { 'x-api-key': stdout.trim() })).toMatchObject({
      status: 200,
      body: { stdout: 'hello\n', exit_code: 0 },
    })
  })

  it('lists keys by prefix, without secrets', async () => {
    const { id, secret } = await newKey('--org', 'listed', '--profile', 'small', '--region', 'eu')
    const { stdout } = await keys(['list', '--org', 'listed'])
    const [, row = ''] = stdout.trim().split('\n')
    expect(row).toMatch(new RegExp(`^${id} +sk-eu-\\S{4}… +listed +small +- +\\S+ +active$`))
    expect(row).toContain(secret.slice(0, 10))
    expect((await keys(['list'])).stdout).not.toContain(secret.slice(0, 16))
  })

  it('keeps the database owned by the server user, and never opens it as another user', async () => {
    for (const name of ['glovebox.db', 'glovebox.db-wal', 'glovebox.db-shm']) {
      const { uid, mode } = statSync(join(place.directory, 'home', 'front', name))
      expect([name, uid, mode & 0o777]).toEqual([name, place.frontUid, 0o600])
    }
    const stranger = await keys(['list'], ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'])
    expect([stranger.code, stranger.stdout]).toEqual([78, ''])
    expect(stranger.stderr).toMatch(/sudo/)
  })

  it('rejects unknown names, and lists the known ones', async () => {
    expect(await keys(['create', '--profile', 'large'])).toMatchObject({
      code: 64,
      stdout: '',
      stderr: expect.stringMatching(/default, small.*large/),
    })
    expect(await keys(['revoke', 'key_none'])).toMatchObject({ code: 64, stderr: expect.stringMatching(/keys list/) })
    expect(await keys(['create', '--org', 'a\nb'])).toMatchObject({ code: 64, stdout: '' })
  })
})

describe('a server with keys', () => {
  it('prints how to create a key when none exists', () => {
    expect(server.stdout).toMatch(/callers need a key[\s\S]*glovebox keys create/)
  })

  it('rejects requests without a key', async () => {
    expect(await run('echo', {})).toMatchObject({
      status: 401,
      body: { error: 'unauthorized', message: expect.stringContaining('No API key was sent') },
    })
    expect((await callTool(server.url, { code: '1' })).status).toBe(401)
    for (const path of ['/healthz', '/readyz']) expect((await fetch(`${server.url}${path}`)).status).toBe(200)
  })

  it('limits a key to its profile', async () => {
    const { headers } = await newKey('--profile', 'small')
    expect(await run('print(1)', headers, 'python')).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('Available languages: bash') },
    })
    expect((await run('echo small', headers)).body).toMatchObject({ stdout: 'small\n' })
  })

  it('serves the official client', async () => {
    const { headers } = await newKey()
    const client = new Client({ name: 'story', version: '1.0.0' })
    const transport = new StreamableHTTPClientTransport(new URL(`${server.url}/mcp`), { requestInit: { headers } })
    await client.connect(transport as Transport)
    const result = await client.callTool({ name: 'sandbox_execute', arguments: { code: 'print(6 * 7)' } })
    await client.close()
    expect(result.structuredContent).toMatchObject({ stdout: '42\n', exit_code: 0 })
  })

  it('accepts the key of `glovebox run` from a variable, and asks for it when missing', async () => {
    const { secret } = await newKey()
    const glovebox = async (env: object) => {
      const child = spawn(program, ['run', '-', '--language', 'bash', '--url', server.url], {
        env: { PATH: process.env.PATH ?? '', ...env },
      })
      child.stdin.end('echo from here; exit 3')
      const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
      return { code, stdout, stderr }
    }
    expect(await glovebox({ GLOVEBOX_KEY: secret })).toMatchObject({ code: 3, stdout: 'from here\n' })
    expect(await glovebox({})).toMatchObject({ code: 125, stderr: expect.stringContaining('GLOVEBOX_KEY') })
  })

  it('never shares slots between keys', async () => {
    const [one, two] = [await newKey('--org', 'one'), await newKey('--org', 'two')]
    const slot = 'readlink /proc/self/ns/user /proc/self/ns/cgroup'
    const seen = async ({ headers }: typeof one) => (await run(slot, headers)).body.stdout
    const [first, other, again] = [await seen(one), await seen(two), await seen(one)]
    expect(again).toBe(first)
    expect(other).not.toBe(first)
  })
})

describe('a revoked key', () => {
  it('is rejected immediately, its run is cancelled, and its slots are destroyed', async () => {
    const { id, headers } = await newKey('--org', 'leaving')
    const followed = await follow(server.url, 'bash', 'echo begun; sleep 60', {}, headers)
    await followed.said('begun')
    const own = slotsOf(place).filter((slot) => slot.runPids.length > 0)
    expect(own).toHaveLength(1)

    const { stdout } = await keys(['revoke', id])
    expect(stdout).toBe(`Revoked ${id}.\n`)
    expect((await run('echo', headers)).status).toBe(401)
    expect(await followed.result).toMatchObject({ ending: { kind: 'cancelled' } })
    const left = () => slotsOf(place).filter((slot) => own.some((gone) => gone.id === slot.id))
    await until(() => left().length === 0, 'its slots are gone')
    expect((await keys(['list', '--org', 'leaving'])).stdout).toMatch(/revoked \d{4}-/)
  })

  it('is rejected as well when revoked while no server was running, and a new key is accepted', async () => {
    const old = await newKey()
    await server.stop()
    expect((await keys(['revoke', old.id])).code).toBe(0)
    const made = await newKey()
    server = await place.start(...words)
    expect((await run('echo', old.headers)).status).toBe(401)
    expect((await run('echo new', made.headers)).body).toMatchObject({ stdout: 'new\n' })
  })
})

describe('secrets', () => {
  it('do not appear in the log, the database or the arguments of any process', async () => {
    const { secret, headers } = await newKey()
    await execute(server.url, 'bash', 'env; cat /proc/self/environ; ls /proc', {}, headers).then(({ stdout }) =>
      expect(stdout).not.toContain(secret),
    )
    await run('exit 1', headers)
    const random = secret.slice('sk-us-'.length + 4)
    const home = join(place.directory, 'home', 'front')
    for (const name of ['glovebox.db', 'glovebox.db-wal']) {
      expect(readFileSync(join(home, name)).includes(random)).toBe(false)
    }
    for (const pid of [server.supervisorPid, server.frontPid, server.runnerPid]) {
      for (const file of ['cmdline', 'environ'])
        expect(readFileSync(`/proc/${pid}/${file}`, 'utf8')).not.toContain(random)
    }
    expect(JSON.stringify(server.log) + server.stdout).not.toContain(random)
  })
})
