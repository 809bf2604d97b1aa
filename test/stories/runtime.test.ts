import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { freePort, type Glovebox, killIfThere, Place, program } from '../support/glovebox.ts'
import { newKey, runCommand } from '../support/keys.ts'

const place = new Place()
const dumps = join(place.directory, 'dumps')
let server: Glovebox
let token: string
beforeAll(async () => {
  mkdirSync(dumps, { mode: 0o700 })
  chownSync(dumps, place.frontUid, place.frontUid)
  server = await place.start('--no-dev', '--port', `${await freePort()}`, '--heap-dump-dir', dumps)
  token = await newToken('owner')
}, 60_000)
afterAll(() => place.remove())

const newToken = async (role: string, ...more: string[]): Promise<string> => {
  const { stdout } = await runCommand(place, ['tokens', 'create', '--role', role, ...more])
  return stdout.trim()
}

/** Runs a shell line as a reader of the documentation of bx-mcp types it. */
async function shell(line: string): Promise<string> {
  const own = line
    .replaceAll('http://localhost:8080', server.url)
    .replaceAll('your-token', token)
    .replaceAll('resource-uri', 'glovebox://runtime/health')
  const child = spawn('bash', ['-c', own], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [stdout, [code]] = await Promise.all([text(child.stdout), once(child, 'exit')])
  expect([own, code]).toEqual([own, 0])
  return stdout
}

async function runCommandOnly(line: string): Promise<{ code: number; stderr: string }> {
  const child = spawn('bash', ['-c', line], { stdio: ['ignore', 'ignore', 'pipe'] })
  const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')])
  return { code: code as number, stderr }
}

const hasJq = existsSync('/usr/bin/jq')

describe('a server that was just started', () => {
  it('has measured both of its processes since they started', async () => {
    await sleep(1_100)
    const { front, runner } = (await call('node_get_event_loop')) as unknown as Record<string, object>
    // Rounded. No one has asked before.
    for (const reported of [front, runner]) {
      const { over_seconds } = (reported as { lag: { over_seconds: number } }).lag
      expect(over_seconds).toBeGreaterThanOrEqual(1)
      expect(reported).toMatchObject({ use: { idle_ms: expect.any(Number), utilization: expect.any(Number) } })
    }
  })
})

describe('the documented curl session of bx-mcp', () => {
  it('lists tools, prompts and resources, and reads a resource', async () => {
    const answers = [
      `curl -s http://localhost:8080/~bxmcp/boxlang.bxm \\
  -H "Content-Type: application/json" \\
  -H "Authorization: Bearer your-token" \\
  -d '{"jsonrpc":"2.0","method":"tools/list","id":"1"}'`,
      `curl -s http://localhost:8080/~bxmcp/boxlang.bxm \\
  -H "Content-Type: application/json" \\
  -H "Authorization: Bearer your-token" \\
  -d '{"jsonrpc":"2.0","method":"prompts/list","id":"3"}'`,
      `curl -s http://localhost:8080/~bxmcp/boxlang.bxm \\
  -H "Content-Type: application/json" \\
  -H "Authorization: Bearer your-token" \\
  -d '{"jsonrpc":"2.0","method":"resources/list","id":"5"}'`,
      `curl -s http://localhost:8080/~bxmcp/boxlang.bxm \\
  -H "Content-Type: application/json" \\
  -H "Authorization: Bearer your-token" \\
  -d '{"jsonrpc":"2.0","method":"resources/read","params":{"uri":"resource-uri"},"id":"6"}'`,
    ]
    const [tools, prompts, resources, resource] = await Promise.all(
      answers.map(async (line) => JSON.parse(await shell(line))),
    )
    expect(tools).toMatchObject({
      jsonrpc: '2.0',
      id: '1',
      result: { tools: expect.arrayContaining([expect.objectContaining({ name: 'runtime_get_info' })]) },
    })
    expect(prompts).toMatchObject({
      id: '3',
      result: { prompts: expect.arrayContaining([expect.objectContaining({ name: 'full_system_audit' })]) },
    })
    expect(resources.result.resources.length).toBeGreaterThan(5)
    expect(JSON.parse(resource.result.contents[0].text)).toMatchObject({ score: expect.any(Number) })
  })

  it.skipIf(!hasJq)('calls a tool and gets a prompt, with jq', async () => {
    const info = await shell(`curl -s http://localhost:8080/~bxmcp/boxlang.bxm \\
  -H "Content-Type: application/json" \\
  -H "Authorization: Bearer your-token" \\
  -d '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"runtime_get_info","arguments":{}},"id":"2"}' | jq '.result.content[0].text | fromjson'`)
    expect(JSON.parse(info)).toMatchObject({ product: 'glovebox', ready: true, interpreters: expect.any(Array) })
    const prompt = await shell(`curl -s http://localhost:8080/~bxmcp/boxlang.bxm \\
  -H "Content-Type: application/json" \\
  -H "Authorization: Bearer your-token" \\
  -d '{"jsonrpc":"2.0","method":"prompts/get","params":{"name":"full_system_audit","arguments":{}},"id":"4"}' | jq '.result.messages'`)
    expect(JSON.parse(prompt)).toMatchObject([{ role: 'user', content: { type: 'text' } }])
  })
})

/** The fields of reports that these tests read. */
interface Report {
  [name: string]: unknown
  path: string
  names: string[]
  disks: object
  issues: object[]
  entries: { text: string }[]
}

interface Answer {
  result?: { structuredContent: Record<string, unknown> }
  error?: { code: number; message: string }
}

async function call(name: string, given: object = {}): Promise<Report> {
  const response = await fetch(`${server.url}/runtime/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: given } }),
  })
  const { result, error } = (await response.json()) as Answer
  if (error) throw new Error(`${name}: ${error.message}`)
  return result!.structuredContent as Report
}

describe('a running server', () => {
  it('reports on both of its processes', async () => {
    for (const name of [
      'node_get_memory_info',
      'node_get_cpu_info',
      'node_get_file_descriptors',
      'node_get_event_loop',
      'node_get_thread_dump',
      'node_get_gc_info',
    ])
      expect(Object.keys(await call(name))).toEqual(['front', 'runner'])
    const { front, runner } = (await call('node_get_runtime_info')) as unknown as Record<string, { pid: number }>
    expect([front!.pid, runner!.pid]).toEqual([server.frontPid, server.runnerPid])
    const hot = await call('node_get_hot_threads', { process: 'runner', durationMs: 100 })
    expect(hot.runner).toMatchObject({ duration_ms: 100, hot_functions: expect.any(Array) })
  })

  it('counts runs, slots and disks, and finds what is active', async () => {
    const key = await newKey(place)
    const running = fetch(`${server.url}/v1/sandbox/execute`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key.secret}` },
      body: JSON.stringify({ language: 'bash', code: 'sleep 30' }),
    })
    await expect.poll(async () => (await call('app_get_summary')).active, { timeout: 20_000 }).toBe(1)
    const { names } = await call('app_get_names')
    await expect.poll(async () => (await call('app_get', { appName: names[0] })).state).toBe('running')
    expect(await call('executor_get_all')).toMatchObject({
      executors: { queue: { active: 1, queued: 0 }, slots: { active: 1 } },
    })
    await call('app_stop', { appName: names[0] })
    expect(await (await running).json()).toMatchObject({ ending: { kind: 'cancelled' } })
    expect(await call('executor_get_stats')).toMatchObject({
      slots: { failed: 0 },
      latest: { by_ending: { cancelled: 1 } },
    })
    expect(Object.keys((await call('node_get_disk_usage')).disks)).toEqual(['home', 'state'])
    expect((await call('system_get_health')).subsystems).toMatchObject({
      executors: 100,
      datasources: 100,
      schedulers: 100,
    })
  })

  it('shows the log of the runner, and changes the level of both for a time', async () => {
    const { entries } = (await call('logging_read_entries', { process: 'runner' })) as unknown as {
      entries: { text: string }[]
    }
    expect(entries.some(({ text: line }) => line.includes('runner ready'))).toBe(true)
    expect(await call('runtime_toggle_debug_mode', { minutes: 1 })).toMatchObject({
      front: { level: 'debug', reverts_to: 'info' },
      runner: { level: 'debug' },
    })
    expect(await call('logging_get_info')).toMatchObject({
      loggers: { front: { level: 'debug' }, runner: { level: 'debug' } },
    })
  })

  it('writes a heap dump that only its own user can read', async () => {
    const { path } = await call('node_trigger_heap_dump')
    expect(readdirSync(dumps)).toHaveLength(1)
    expect([statSync(path).mode & 0o777, statSync(path).uid]).toEqual([0o600, place.frontUid])
  })

  it('is limited for a token by patterns that its creator gave', async () => {
    const limited = await newToken('admin', '--runtime-tools', 'cache_*', '--runtime-tools-except', '*_clear*')
    const response = await fetch(`${server.url}/runtime/rpc`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${limited}` },
      body: '{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
    })
    const { result } = (await response.json()) as { result: { tools: { name: string }[] } }
    expect(result.tools.every(({ name }) => name.startsWith('cache_') && !name.includes('_clear'))).toBe(true)
    expect(result.tools.length).toBeGreaterThan(5)
  })

  it('shows named sandboxes with what they use', async () => {
    const key = await newKey(place)
    const response = await fetch(`${server.url}/v1/sandboxes`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key.secret}` },
      body: JSON.stringify({ name: 'workbench' }),
    })
    expect(response.status).toBe(201)
    expect(await call('app_get_sandboxes')).toMatchObject({
      total: 1,
      sandboxes: [
        { name: 'workbench', state: 'running', memory_bytes: expect.any(Number), disk_bytes: expect.any(Number) },
      ],
    })
    expect(await call('app_get_summary')).toMatchObject({ sandboxes: { running: 1 } })
  })

  it('ends contexts of named sandboxes, restarts and stops them', async () => {
    const key = await newKey(place)
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${key.secret}` }
    const send = async (path: string, body: object) =>
      (await (
        await fetch(`${server.url}/v1/sandboxes${path}`, { method: 'POST', headers, body: JSON.stringify(body) })
      ).json()) as { id: string; started_at: string; stdout: string }
    const { id: appName } = await send('', { name: 'operated' })
    const code = (text: string) => send('/operated/code', { language: 'python', code: text })
    await code('x = 41')
    expect(await call('app_sessions_clear', { appName })).toEqual({ ended: 1 })
    expect(JSON.stringify(await code('print("x" in globals())'))).toContain('False')
    const before = await call('app_get', { appName })
    expect(before).toMatchObject({ kind: 'sandbox', name: 'operated', state: 'running' })
    await call('app_restart', { appName })
    const after = await call('app_get', { appName })
    expect([after.state, after.started_at === before.started_at]).toEqual(['running', false])
    await call('app_stop', { appName })
    expect(await call('app_get', { appName })).toMatchObject({ state: 'stopped', reason: 'operator' })
    expect(await call('app_has', { appName })).toEqual({ has: true })
  })

  it('is shown by glovebox top: once as text or JSON, and live on a terminal', async () => {
    const keyFile = join(place.directory, 'token')
    writeFileSync(keyFile, token, { mode: 0o600 })
    const top = `${program} top --url ${server.url} --key-file ${keyFile}`
    const printed = JSON.parse(await shell(`${top} --json`))
    expect(printed).toMatchObject({ health: { score: expect.any(Number) }, now: { sandboxes: { running: 1 } } })
    // A pipe is no terminal: one view, without control characters.
    const shown = await shell(`${top} | cat`)
    expect(shown).toMatch(/^server {5}http.*\nruns {7}0 active, 0 waiting; .*\n/)
    expect(shown).toMatch(/\nslots .*\nsandboxes {2}running 1\nrequests .*\nfront .*\nrunner .*/)
    expect(shown).not.toContain('\x1b')
    const live = spawn('script', ['-qec', `${top} --interval 0.5`, '/dev/null'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let seen = ''
    for await (const piece of live.stdout) {
      seen += piece
      // The second view replaces the first one.
      if (seen.split('\x1b[H').length > 2) break
    }
    live.kill('SIGTERM')
    await once(live, 'exit')
    expect(seen.split('\x1b[H')[1]).toMatch(/server.*\r\n[\s\S]*runs.*\r\n/)
  })

  it('is not shown to a caller without a token', async () => {
    const { code, stderr } = await runCommandOnly(`${program} top --url ${server.url} --once`)
    expect([code, stderr]).toEqual([
      77,
      expect.stringMatching(/an admin token in GLOVEBOX_KEY or --key-file is required/),
    ])
  })

  it('reports a runner that is gone, and one that has come back', async () => {
    const { runnerPid } = server
    process.kill(runnerPid, 'SIGSTOP')
    try {
      await expect.poll(async () => (await call('runtime_get_info')).ready, { timeout: 30_000 }).toBe(false)
      const health = await call('system_get_health')
      expect(health).toMatchObject({ status: 'critical' })
      expect(health.issues).toContainEqual(
        expect.objectContaining({ code: 'runtime:RUNNER_DOWN', severity: 'critical' }),
      )
      expect(await call('node_get_memory_info')).toMatchObject({
        front: expect.any(Object),
        runner: { unavailable: expect.any(String) },
      })
    } finally {
      // The supervisor replaces it, unless it has done so already.
      killIfThere(runnerPid)
    }
    await expect.poll(async () => (await call('runtime_get_info')).ready, { timeout: 30_000 }).toBe(true)
  })
})
