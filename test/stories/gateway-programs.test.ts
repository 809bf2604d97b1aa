import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { program } from '../support/glovebox.ts'
import { installWithinMs } from '../support/installed-packages.ts'
import { indexesOfThisMachine } from '../support/machine-network.ts'
import { processesWith } from '../support/processes.ts'
import { plainServer } from '../support/stdio-upstream.ts'
import { openStory } from '../support/story.ts'

const packages = {
  everything: '@modelcontextprotocol/server-everything@2026.8.31',
  filesystem: '@modelcontextprotocol/server-filesystem@2026.8.31',
  memory: '@modelcontextprotocol/server-memory@2026.8.31',
}
const machine = await indexesOfThisMachine()
const directory = mkdtempSync(join(tmpdir(), 'glovebox-programs-'))
const config = join(directory, 'glovebox.yaml')
writeFileSync(config, `package_indexes: ${JSON.stringify(machine.rules)}\nupstream_programs_per_org: 8\n`)
chmodSync(directory, 0o755)
const story = openStory(['--no-dev', '--config', config])
afterAll(() => rmSync(directory, { recursive: true }))
let key: string
beforeAll(async () => {
  await glovebox('orgs', 'create', 'acme')
  key = (await glovebox('keys', 'create', '--org', 'acme')).stdout.trim()
})

/** Runs an administration command beside the server, as an operator does. */
const glovebox = (...words: string[]) => gloveboxWith({}, ...words)

async function gloveboxWith(
  env: Record<string, string>,
  ...words: string[]
): Promise<{ code: number; stdout: string; stderr: string }> {
  const place = [
    ...['--config', config],
    ...['--home', join(story.place.directory, 'home'), '--state-dir', join(story.place.directory, 'state')],
    ...['--front-uid', `${story.place.frontUid}`, '--front-gid', `${story.place.frontUid}`],
  ]
  // What follows `--` belongs to the program.
  const at = words.includes('--') ? words.indexOf('--') : words.length
  const args = [...words.slice(0, at), ...place, ...words.slice(at)]
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { PATH: process.env.PATH, ...env } })
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
  return { code: code as number, stdout, stderr }
}

const upstreams = (...words: string[]) => {
  const at = words.includes('--') ? words.indexOf('--') : words.length
  return glovebox('upstreams', ...words.slice(0, at), '--org', 'acme', ...words.slice(at))
}

const add = (name: string, words: string[] = []) => {
  const { command, args } = plainServer()
  return upstreams('add', name, ...words, '--', command, ...args)
}

const file = (name: string, content: string): string => {
  const path = join(story.place.directory, name)
  writeFileSync(path, content, { mode: 0o600 })
  return path
}

const call = (tool: string, given: object, id = 7) =>
  JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: tool, arguments: given } })

async function textOf(name: string, tool: string, given: object = {}, as = key): Promise<string> {
  const response = await fetch(`${story.url}/${name}/sse`, {
    method: 'POST',
    headers: { authorization: `Bearer ${as}`, 'content-type': 'application/json' },
    body: call(tool, given),
  })
  const answer = await response.text()
  const data = answer.split('\n').findLast((line) => line.startsWith('data: '))
  const { result, error } = JSON.parse(data?.slice('data: '.length) ?? '{}')
  return result?.content?.[0].text ?? error?.message ?? answer
}

async function connect(name: string): Promise<Client> {
  const client = new Client({ name: 'judge', version: '1' })
  const requestInit = { headers: { authorization: `Bearer ${key}` } }
  const transport = new StreamableHTTPClientTransport(new URL(`${story.url}/${name}/sse`), { requestInit })
  await client.connect(transport as Transport, { timeout: installWithinMs })
  return client
}

describe('a program as an upstream', () => {
  it('has the variables of its declaration, from the environment of the command and from a file', async () => {
    file('second.txt', 'from a file\n')
    const env = { FIRST: { env: 'TEAM_FIRST' }, SECOND: { file: 'second.txt' } }
    const declared = { transport: 'stdio', program: plainServer(), env }
    const path = file('declared.yaml', JSON.stringify({ orgs: { acme: { upstreams: { 'team/declared': declared } } } }))
    const applied = await gloveboxWith({ TEAM_FIRST: 'from the environment' }, 'apply', '-f', path)
    expect(applied).toMatchObject({ code: 0, stdout: '+ upstream acme/team/declared\n' })
    expect(applied.stderr).not.toContain('could not be read')
    expect(await textOf('team/declared', 'variable', { name: 'FIRST' })).toBe('from the environment')
    expect(await textOf('team/declared', 'variable', { name: 'SECOND' })).toBe('from a file')
    expect((await upstreams('remove', 'team/declared')).code).toBe(0)
  })

  it('is registered with its command, runs in a sandbox, and is ended with its daemons', async () => {
    const added = await add('team/plain')
    expect(added).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/^Registered team\/plain with \d+ tools\.\n$/),
    })
    expect(await textOf('team/plain', 'echo', { text: 'inside' })).toBe('inside')
    expect(Number(await textOf('team/plain', 'pid'))).toBeLessThan(100)
    await textOf('team/plain', 'daemon')
    await expect.poll(() => processesWith('86399').length).toBeGreaterThan(0)
    expect((await upstreams('update', 'team/plain', '--disable')).code).toBe(0)
    await expect.poll(() => processesWith('86399'), { timeout: 15_000 }).toEqual([])
    await upstreams('update', 'team/plain', '--enable')
    await expect.poll(() => textOf('team/plain', 'echo', { text: 'again' })).toBe('again')
    const tested = JSON.parse((await upstreams('test', 'team/plain')).stdout)
    expect(tested).toMatchObject({ server: 'plain 1', stderr: expect.stringContaining('plain server ready') })
    // The command has left the processes of the server alone.
    expect(await textOf('team/plain', 'count')).toBe('1')
    expect((await upstreams('remove', 'team/plain')).code).toBe(0)
  })

  it('is ended alone when it uses all of its memory, and says so', async () => {
    const settings = file('small.yaml', 'program: { memory_bytes: 100000000 }\n')
    await add('team/small', ['--secrets-file', settings])
    expect(await textOf('team/small', 'fill')).toMatch(/memory|SIGKILL|KILL/)
    expect(await textOf('team/small', 'echo', { text: 'new' })).toBe('new')
  })

  it('is not a sandbox that a key can list', async () => {
    await textOf('team/small', 'echo', { text: 'x' })
    const headers = { authorization: `Bearer ${key}` }
    const sandboxes = await fetch(`${story.url}/v1/sandboxes?namespace=*`, { headers })
    expect(await sandboxes.json()).toMatchObject({ data: [] })
  })

  it('is installed once by a command and by the server that need it at the same moment', async () => {
    const install = '[sh, -c, "echo begin >> /workspace/log; sleep 2; echo end >> /workspace/log"]'
    const adding = add('team/both', ['--secrets-file', file('both.yaml', `program: { install: ${install} }\n`)])
    await expect
      .poll(() => textOf('team/both', 'read', { path: '/workspace/log' }), { timeout: 30_000, interval: 20 })
      .toBe('begin\nend\n')
    expect(await adding).toMatchObject({ code: 0, stderr: expect.stringMatching(/^Registered team\/both with/m) })
    expect(await textOf('team/both', 'read', { path: '/workspace/log' })).toBe('begin\nend\n')
    await upstreams('remove', 'team/both')
  })

  it('shows the output of its installer while a command waits for it', async () => {
    const settings = file('slow.yaml', 'program: { install: [sh, -c, "echo fetching 1 of 2; sleep 4"] }\n')
    const { code, stderr } = await add('team/slow', ['--secrets-file', settings])
    expect([code, stderr]).toEqual([0, expect.stringContaining('Installing team/slow: fetching 1 of 2\nRegistered')])
    await upstreams('remove', 'team/slow')
    const program = { ...plainServer(), install: ['sh', '-c', 'echo fetching 2 of 2; sleep 4'] }
    const declared = { orgs: { acme: { upstreams: { 'team/slow': { transport: 'stdio', program } } } } }
    const applied = await gloveboxWith({}, 'apply', '-f', file('slow-declared.yaml', JSON.stringify(declared)))
    expect(applied).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('Installing team/slow: fetching 2 of 2\n'),
    })
    await upstreams('remove', 'team/slow')
  })

  it('says what to do when it cannot be installed or started', async () => {
    const missing = await upstreams('add', 'team/missing', '--', 'npx', '-y', 'glovebox-test-no-such-package-7f3a')
    expect(missing.stderr).toMatch(/its tools could not be read: .*could not be installed: npx --yes --package=/)
    const odd = await upstreams('add', 'team/odd', '--', 'no-such-program')
    expect(odd.stderr).toMatch(/cannot be executed/)
  })
})

describe('a program that attacks', () => {
  it('reads no credential of another upstream, no file of the host and no server of it', async () => {
    const secretFile = (name: string) =>
      file(`${name}.yaml`, `credential: { in: env, name: API_TOKEN, values: ['credential-of-${name}'] }\n`)
    const server = createServer((_request, response) => response.end('host')).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    // Without a sandbox, the same program reaches all of it.
    const plain = plainServer()
    const child = spawn(plain.command, plain.args, { env: { ...process.env, API_TOKEN: 'credential-of-host' } })
    try {
      const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
      const outside = async (tool: string, given: object) => {
        child.stdin.write(`${call(tool, given)}\n`)
        return JSON.parse((await lines.next()).value ?? '').result.content[0].text as string
      }
      expect(await outside('read', { path: `/proc/${child.pid}/environ` })).toContain('credential-of-host')
      expect(await outside('connect', { host: '127.0.0.1', port })).toBe('connected')
      expect(await outside('read', { path: secretFile('victim') })).toContain('credential-of-victim')

      await add('team/victim', ['--secrets-file', secretFile('victim')])
      await add('team/attacker', ['--secrets-file', secretFile('attacker')])
      expect(await textOf('team/victim', 'variable', { name: 'API_TOKEN' })).toBe('credential-of-victim')
      const environments = await textOf('team/attacker', 'environments')
      expect(environments).toContain('credential-of-attacker')
      expect(environments).not.toMatch(/credential-of-(?:victim|host)/)
      expect(await textOf('team/attacker', 'connect', { host: '127.0.0.1', port })).not.toBe('connected')
      expect(await textOf('team/attacker', 'read', { path: secretFile('victim') })).toBe('ENOENT')
      expect(await textOf('team/attacker', 'read', { path: '/proc/1/root/etc/shadow' })).not.toContain('root:')
    } finally {
      child.kill('SIGKILL')
      server.close()
    }
  })

  it('has a placeholder instead of a credential that is sent to named servers only', async () => {
    const settings = file(
      'masked.yaml',
      `credential: { in: env, name: API_TOKEN, values: ['credential-of-masked'] }
program: { network: { policy: allow, rules: [api.example.com] }, credential_hosts: [api.example.com] }
`,
    )
    await add('team/masked', ['--secrets-file', settings])
    expect(await textOf('team/masked', 'variable', { name: 'API_TOKEN' })).toMatch(/^GLOVEBOX_SECRET_[0-9a-f]{32}$/)
    expect(await textOf('team/masked', 'environments')).not.toContain('credential-of-masked')
  })

  it('keeps its own network while the profile of the key that calls it changes', async () => {
    const server = createServer((_request, response) => response.end('reached')).listen(0, '127.0.0.2')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const url = `http://127.0.0.2:${port}/`
    const setProfile = async (rule: string) => {
      const settings = file('calling.yaml', `network: allow\nnetwork_allow: ["${rule}"]\n`)
      expect(await glovebox('profiles', 'set', 'calling', settings, '--org', 'acme')).toMatchObject({ code: 0 })
    }
    try {
      await setProfile(`127.0.0.2:${port}`)
      const own = (await glovebox('keys', 'create', '--org', 'acme', '--profile', 'calling')).stdout.trim()
      const settings = file('own.yaml', `program: { network: { policy: allow, rules: ["127.0.0.2:${port}"] } }\n`)
      await add('team/networked', ['--secrets-file', settings])
      expect(await textOf('team/networked', 'fetch', { url }, own)).toBe('reached')
      const headers = { authorization: `Bearer ${own}`, 'content-type': 'application/json' }
      const ask = (path: string, body: object) =>
        fetch(`${story.url}/v1/sandboxes${path}`, { method: 'POST', headers, body: JSON.stringify(body) })
      expect((await ask('', { name: 'beside' })).status).toBe(201)
      const fromSandbox = async () => {
        const answer = await ask('/beside/commands', { command: 'curl', args: ['-sS', url] })
        return ((await answer.json()) as { stdout: string }).stdout
      }
      expect(await fromSandbox()).toBe('reached')
      await setProfile('example.com')
      // The sandbox of the key shows that the change has been applied to all that it concerns.
      await expect.poll(fromSandbox, { timeout: 15_000 }).toContain('is not listed')
      expect(await textOf('team/networked', 'fetch', { url }, own)).toBe('reached')
      const removed = await fetch(`${story.url}/v1/sandboxes/beside`, { method: 'DELETE', headers })
      expect(removed.ok).toBe(true)
    } finally {
      server.close()
    }
  })

  it('leaves no secret in the log', () => {
    expect(JSON.stringify(story.server.log)).not.toMatch(/credential-of-(?:victim|attacker|masked)/)
  })
})

describe.skipIf(!machine.isReached)(`a server from npm${machine.isReached ? '' : ' (no package registry)'}`, () => {
  afterAll(async () => {
    for (const name of Object.keys(packages)) await upstreams('remove', `npm/${name}`)
  })

  it(
    'is imported, installed once while its client waits, and then runs without a network',
    async () => {
      const servers = {
        everything: { command: 'npx', args: ['-y', packages.everything] },
        filesystem: { command: 'npx', args: ['-y', packages.filesystem, '/workspace'] },
        memory: { command: 'npx', args: ['-y', packages.memory], env: { MEMORY_FILE_PATH: '/workspace/memory.json' } },
        container: { command: 'docker', args: ['run', 'x'] },
      }
      const clientFile = file('npm.json', JSON.stringify({ mcpServers: servers }))
      const imported = await upstreams('import', clientFile, '--vendor', 'npm')
      expect(imported.stderr).toMatch(/Skipped npm\/container: its command is docker/)
      expect(imported.stderr).toMatch(/Registered npm\/everything with \d+ tools/)
      expect(imported.stderr).toMatch(/Registered npm\/filesystem with \d+ tools/)
      expect(imported.stderr).toMatch(/Registered npm\/memory with \d+ tools/)
      expect(await textOf('npm/everything', 'echo', { message: 'hello' })).toBe('Echo: hello')
      const client = await connect('npm/everything')
      let progress = 0
      const asked = { name: 'trigger-long-running-operation', arguments: { duration: 1, steps: 2 } }
      await client.callTool(asked, undefined, { onprogress: () => (progress += 1) })
      expect(progress).toBeGreaterThan(0)
      await client.close()
    },
    4 * installWithinMs,
  )

  it(
    'keeps its files between processes',
    async () => {
      const written = await textOf('npm/filesystem', 'write_file', { path: '/workspace/note.txt', content: 'kept' })
      expect(written).toContain('/workspace/note.txt')
      await upstreams('update', 'npm/filesystem', '--disable')
      await upstreams('update', 'npm/filesystem', '--enable')
      await expect
        .poll(() => textOf('npm/filesystem', 'read_text_file', { path: '/workspace/note.txt' }), { timeout: 30_000 })
        .toBe('kept')
      const entities = [{ name: 'Ada', entityType: 'person', observations: ['writes programs'] }]
      await textOf('npm/memory', 'create_entities', { entities })
      expect(await textOf('npm/memory', 'read_graph')).toContain('writes programs')
    },
    installWithinMs,
  )
})
