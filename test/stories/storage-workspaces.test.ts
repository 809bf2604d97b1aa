import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { newKey, runCommand } from '../support/keys.ts'
import { openStory } from '../support/story.ts'

const story = openStory(['--no-dev', '--volumes', 'data:rw', '--limit-thread', '32MiB', '--storage-reserve', '0'])

/** Both transports, since a workspace is the same whatever a client speaks. */
let [http, sse]: Client[] = []
let headers = { authorization: '' }
const clients: Client[] = []
beforeAll(async () => {
  headers = (await newKey(story.place, '--org', 'beta')).headers
  await runCommand(story.place, ['volumes', 'create', 'data', '--quota', '16MiB', '--org', 'beta'])
  http = await overHttp(headers)
  sse = await connected(new SSEClientTransport(new URL(`${story.url}/sse`), { requestInit: { headers } }))
})
afterAll(() => Promise.all(clients.map((client) => client.close())))

const overHttp = (headers: { authorization: string }) =>
  connected(
    new StreamableHTTPClientTransport(new URL(`${story.url}/mcp?toolsets=workspace`), { requestInit: { headers } }),
  )

async function connected(transport: Transport): Promise<Client> {
  const client = new Client({ name: 'coding-agent', version: '1.0.0' })
  await client.connect(transport)
  clients.push(client)
  return client
}

async function call(client: Client, workspace: string, name: string, input: object = {}) {
  const { content, isError } = await client.callTool({ name, arguments: { workspace, ...input } })
  return { text: (content as { text: string }[])[0]!.text, isError: isError === true }
}

async function api(method: string, path: string, body?: object) {
  const json = body && { headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) }
  const response = await fetch(`${story.url}${path}`, { method, headers, ...json })
  const text = await response.text()
  return { status: response.status, body: (text === '' ? {} : JSON.parse(text)) as Record<string, unknown> }
}

const inThread = (thread: string, code: string) => execute(story.url, 'bash', code, { thread_id: thread }, headers)

describe('a thread as a workspace', () => {
  it('shares its files with the runs of the thread, in both directions and with the same owner', async () => {
    await inThread('shared', 'mkdir src; echo one >src/a.txt; pwd >where; chmod 600 src/a.txt')
    for (const client of [http!, sse!]) {
      expect(await call(client, 'thread:shared', 'Read', { file_path: 'src/a.txt' })).toMatchObject({
        text: '1\tone\n',
      })
      expect(await call(client, 'thread:shared:/src', 'Glob', { pattern: '*' })).toMatchObject({ text: 'a.txt' })
    }
    await call(http!, 'thread:shared', 'Edit', { file_path: 'src/a.txt', old_string: 'one', new_string: 'two' })
    await call(http!, 'thread:shared', 'Write', { file_path: 'made/b.txt', content: 'new\n' })
    expect(await call(http!, 'thread:shared', 'Bash', { command: 'pwd; id -u; echo $HOME' })).toMatchObject({
      text: '/home/baponi\n1000\n/home/baponi\n',
    })
    expect(
      (await inThread('shared', 'cat where src/a.txt made/b.txt; echo more >>made/b.txt; stat -c %U:%a src/a.txt made'))
        .stdout,
    ).toBe('/home/baponi\ntwo\nnew\nbaponi:600\nbaponi:755\n')
    expect(await call(http!, 'thread:shared', 'Read', { file_path: 'made/b.txt' })).toMatchObject({
      text: '1\tnew\n2\tmore\n',
    })
  })

  it('is created by the first call, has the quota of threads, and keeps its files when the sandbox ends', async () => {
    await call(http!, 'thread:created', 'Write', { file_path: 'kept.txt', content: 'kept\n' })
    expect((await api('GET', '/v1/threads/created')).body).toMatchObject({ busy: true, quota_bytes: 32 * 2 ** 20 })
    const full = await call(http!, 'thread:created', 'Bash', { command: 'head -c 64M /dev/zero >big; stat -c %s big' })
    expect(full.text).toMatch(/No space left/)
    await call(http!, 'thread:created', 'Bash', { command: 'rm big' })
    expect((await inThread('created', 'cat kept.txt')).stdout).toBe('kept\n')
    expect((await api('GET', '/v1/threads/created')).body).toMatchObject({ busy: false })
  })

  it('is refused while a run has the thread, and a run while a call has it; neither sees half of the other', async () => {
    const run = inThread('turns', 'touch begun; sleep 2; ls; cat by-tool 2>/dev/null; echo done')
    await expect.poll(async () => (await api('GET', '/v1/threads/turns')).body.busy).toBe(true)
    expect(await call(http!, 'thread:turns', 'Write', { file_path: 'by-tool', content: 'x' })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/thread turns/i),
    })
    expect((await run).stdout).toBe('begun\ndone\n')
    const long = call(http!, 'thread:turns', 'Bash', { command: 'echo x >by-tool; sleep 2; ls; echo over' })
    await expect.poll(async () => (await api('GET', '/v1/threads/turns')).body.busy).toBe(true)
    expect(
      await api('POST', '/v1/sandbox/execute', { language: 'bash', code: 'ls', thread_id: 'turns' }),
    ).toMatchObject({
      status: 409,
      body: { code: 'thread_busy' },
    })
    expect(await api('POST', '/v1/threads/turns/fork', { to: 'copy' })).toMatchObject({ status: 409 })
    expect(await long).toMatchObject({ text: 'begun\nby-tool\nover\n' })
  })

  it('is given up by an idle workspace to runs, forks, file transfers and deletion, and its background commands end', async () => {
    const begin = async () => {
      const started = await call(http!, 'thread:given', 'Bash', {
        command: 'while sleep 0.1; do date >>ticks; done',
        run_in_background: true,
      })
      expect(started.text).toMatch(/^shell_id/)
    }
    await begin()
    expect(
      await inThread('given', 'sleep 0.5; n=$(wc -l <ticks); sleep 0.5; echo $(($(wc -l <ticks) - n))'),
    ).toMatchObject({
      stdout: '0\n',
    })
    await begin()
    expect((await api('POST', '/v1/threads/given/fork', { to: 'given-copy' })).status).toBeLessThan(300)
    await begin()
    const link = await api('POST', '/v1/files/upload', { source: 'thread', id: 'given', path: 'up.txt', size: 8 })
    expect((await fetch(String(link.body.url), { method: 'PUT', body: 'uploaded' })).status).toBeLessThan(300)
    await begin()
    expect((await api('DELETE', '/v1/threads/given')).status).toBeLessThan(300)
    expect((await api('GET', '/v1/threads/given')).status).toBe(404)
  })

  it('counts what was read by workspace: a file that a run changed must be read again', async () => {
    await inThread('stale', 'echo one >a')
    await call(http!, 'thread:stale', 'Read', { file_path: 'a' })
    await inThread('stale', 'echo two >a')
    expect(
      await call(http!, 'thread:stale', 'Edit', { file_path: 'a', old_string: 'two', new_string: 'x' }),
    ).toMatchObject({
      isError: true,
      text: expect.stringMatching(/Read it first/),
    })
  })

  it('has snapshots that runs of the thread do not disturb', async () => {
    await inThread('snapped', 'echo one >a')
    await call(http!, 'thread:snapped', 'snapshot_create', { name: 'first' })
    await inThread('snapped', 'echo two >a; echo new >b')
    expect((await call(http!, 'thread:snapped', 'snapshot_diff', { name: 'first' })).text).toContain('+two')
    await call(http!, 'thread:snapped', 'snapshot_restore', { name: 'first' })
    expect((await inThread('snapped', 'cat a; ls')).stdout).toBe('one\na\n')
  })
})

describe('a volume as a workspace', () => {
  it('shares its files with runs at the same time, and an edit notices their changes', async () => {
    await call(http!, 'volume:data', 'Write', { file_path: 'a.txt', content: 'one\n' })
    expect(
      (await execute(story.url, 'bash', 'cat /volumes/data/a.txt; echo two >/volumes/data/a.txt', {}, headers)).stdout,
    ).toBe('one\n')
    expect(
      await call(http!, 'volume:data', 'Edit', { file_path: 'a.txt', old_string: 'two', new_string: 'x' }),
    ).toMatchObject({
      isError: true,
      text: expect.stringMatching(/changed since it was read/),
    })
    expect(await call(sse!, 'volume:data', 'Read', { file_path: 'a.txt' })).toMatchObject({ text: '1\ttwo\n' })
  })

  it('must be one that the profile mounts', async () => {
    expect(await call(http!, 'volume:other', 'Read', { file_path: 'a' })).toMatchObject({ isError: true })
    expect(await call(http!, 'volume:data:/../..', 'Glob', { pattern: '*' })).toMatchObject({ isError: true })
  })
})

describe('the rights of keys', () => {
  const withKey = async (...flags: string[]) => overHttp((await newKey(story.place, '--org', 'acme', ...flags)).headers)

  it('limit threads as workspaces to those of the organization, for keys that may use files of threads', async () => {
    await call(http!, 'thread:secret', 'Write', { file_path: 'a.txt', content: 'of beta\n' })
    const acme = await withKey()
    await runCommand(story.place, ['volumes', 'create', 'data', '--quota', '16MiB', '--org', 'acme'])
    expect((await call(acme, 'thread:secret', 'Glob', { pattern: '*' })).text).toBe('no files found')
    await call(acme, 'thread:own', 'Write', { file_path: 'a.txt', content: 'of acme\n' })
    const [reader, writer] = [await withKey('--tools', 'Read,files_download'), await withKey('--tools', 'Write')]
    expect(await call(reader, 'thread:own', 'Read', { file_path: 'a.txt' })).toMatchObject({ text: '1\tof acme\n' })
    expect(await call(writer, 'thread:own', 'Write', { file_path: 'b.txt', content: 'x' })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/files.write/),
    })
  })

  it('give each key a sandbox of its own, with its own environment', async () => {
    const [one, other] = [await withKey('--env', 'MINE=first'), await withKey()]
    const first = await call(one, 'thread:keyed', 'Bash', { command: 'echo $MINE >env; cat env; touch /tmp/left' })
    expect(first.text).toBe('first\n')
    const second = await call(other, 'thread:keyed', 'Bash', { command: 'echo "[$MINE]"; ls /tmp; cat env' })
    expect(second.text).toBe('[]\nfirst\n')
  })
})
