import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createToken, type TokenSettings } from '../../src/core/admin/tokens.ts'
import { coreSettings, type Front, openFront } from '../support/front.ts'

let front: Front
beforeAll(async () => {
  front = await openFront()
})
afterAll(() => front.close())

const metricsOf = async ({ url }: Front, headers: Record<string, string> = {}): Promise<string> => {
  const response = await fetch(`${url}/metrics`, { headers })
  expect(response.status).toBe(200)
  expect(response.headers.get('content-type')).toContain('text/plain')
  return response.text()
}

/** The value of one line of the text format; a counter that was never incremented is 0. */
const figureOf = (text: string, name: string): number =>
  Number(
    text
      .split('\n')
      .find((line) => line.startsWith(`${name} `))
      ?.slice(name.length + 1) ?? 0,
  )

const execute = (more: object, to = front) => to.post('/v1/sandbox/execute', { language: 'bash', ...more })

describe('the Prometheus metrics', () => {
  it('count every run once, by language and ending, and each of its phases', async () => {
    const ended = (text: string) => figureOf(text, 'glovebox_runs_total{language="bash",ending="exited"}')
    const phase = (text: string, name: string) =>
      figureOf(text, `glovebox_run_phase_seconds_count{language="bash",phase="${name}"}`)
    const before = await metricsOf(front)
    await execute({ code: 'echo 1' })
    await execute({ code: 'exit 3' })
    const after = await metricsOf(front)
    expect(ended(after) - ended(before)).toBe(2)
    for (const name of ['queue', 'slot', 'jail', 'host', 'run', 'drain', 'record'])
      expect(phase(after, name) - phase(before, name)).toBe(2)
    expect(figureOf(after, 'glovebox_run_phase_seconds_sum{language="bash",phase="record"}')).toBeGreaterThan(0)
  })

  it('show what is open, and count requests that were refused at a limit', async () => {
    const limited = await openFront(undefined, {}, undefined, undefined, { ...coreSettings.requestLimits, perKey: 1 })
    try {
      const running = execute({ code: 'sleep 1' }, limited)
      await vi.waitFor(async () => {
        expect(figureOf(await metricsOf(limited), 'glovebox_requests_open')).toBe(1)
      })
      expect((await execute({ code: 'true' }, limited)).status).toBe(429)
      const text = await metricsOf(limited)
      expect(figureOf(text, 'glovebox_requests_refused_total{reason="requests_full"}')).toBe(1)
      expect(figureOf(text, 'glovebox_connections')).toBeGreaterThanOrEqual(2)
      expect(figureOf(text, 'glovebox_buffer_bytes')).toBeGreaterThan(0)
      expect((await running).status).toBe(200)
    } finally {
      await limited.close()
    }
  })

  it('count responses by registered route, never by a path that a client made up', async () => {
    await fetch(`${front.url}/made-up-by-a-client`)
    await fetch(`${front.url}/healthz?x=made-up`)
    const text = await metricsOf(front)
    expect(figureOf(text, 'glovebox_http_answers_total{method="GET",route="(none)",status="404"}')).toBe(1)
    expect(figureOf(text, 'glovebox_http_answers_total{method="GET",route="/healthz",status="200"}')).toBe(1)
    expect(text).not.toContain('made-up')
  })

  it('name no key, thread or run', async () => {
    const { trace_id } = (await (await execute({ code: 'echo 1' })).json()) as { trace_id: string }
    const text = await metricsOf(front)
    for (const word of [trace_id, 'key_dev']) expect(text).not.toContain(word)
    const labels = new Set([...text.matchAll(/[{,](\w+)="/g)].map(([, label]) => label))
    const bounded = [
      ...['language', 'phase', 'ending', 'method', 'route', 'status', 'state', 'part', 'le'],
      ...['org', 'version', 'severity', 'server', 'outcome', 'file', 'kind', 'directory'],
    ]
    expect([...labels].filter((label) => !bounded.includes(label!))).toEqual([])
  })

  it('count the runs of a bounded number of organizations', async () => {
    const runs = (text: string, org: string) => figureOf(text, `glovebox_org_runs_total{org="${org}"}`)
    const before = runs(await metricsOf(front), 'org_dev')
    await execute({ code: 'echo 1' })
    expect(runs(await metricsOf(front), 'org_dev')).toBe((before ?? 0) + 1)
    for (let at = 0; at < 250; at++)
      front.metrics.ran({ id: `run${at}`, language: 'bash', orgId: `org_${at}` }, 'exited', null, 2_000)
    const text = await metricsOf(front)
    const named = [...text.matchAll(/^glovebox_org_runs_total\{org="(\w+)"\}/gm)].map(([, org]) => org)
    expect([named.length, named.includes('other')]).toEqual([201, true])
    expect(runs(text, 'other')).toBe(51)
    expect(figureOf(text, 'glovebox_org_cpu_seconds_total{org="other"}')).toBe(102)
  })

  it('include the state of the runner only while one is connected', async () => {
    expect(figureOf(await metricsOf(front), 'glovebox_runner_up')).toBe(1)
    const told = [
      'glovebox_queue_waiting',
      'glovebox_slots{state="ready"}',
      'glovebox_jails_waiting',
      'glovebox_filesystems_mounted',
      'glovebox_process_resident_memory_bytes{part="runner"}',
    ]
    const tells = (text: string) => told.filter((name) => `\n${text}`.includes(`\n${name} `))
    expect(tells(await metricsOf(front))).toEqual(told)
    front.runner.readiness = { ready: false, reason: 'it was killed' }
    const without = await metricsOf(front)
    front.runner.readiness = { ready: true }
    expect(figureOf(without, 'glovebox_runner_up')).toBe(0)
    expect(tells(without)).toEqual([])
    expect(without).toContain('glovebox_process_resident_memory_bytes{part="front"} ')
    expect(figureOf(await metricsOf(front), 'glovebox_runner_up')).toBe(1)
  })

  it('show health, the database, slots and upstreams, of which a bounded number is named', async () => {
    for (let at = 0; at < 250; at++) front.metrics.calledUpstream(`acme/u${at}`, at === 0, 10, 1)
    const text = await metricsOf(front)
    expect(figureOf(text, 'glovebox_health_score')).toBeGreaterThanOrEqual(0)
    expect(figureOf(text, 'glovebox_store_statements_total{outcome="success"}')).toBeGreaterThanOrEqual(0)
    expect(figureOf(text, 'glovebox_store_bytes{file="database"}')).toBeGreaterThan(0)
    expect(figureOf(text, 'glovebox_slots_made_total{outcome="success"}')).toBe(2)
    expect(figureOf(text, 'glovebox_upstream_failing{server="acme/u0"}')).toBe(1)
    expect(figureOf(text, 'glovebox_http_requests_total{route="GET /metrics"}')).toBeGreaterThan(0)
    // Reading does not count anything twice.
    const of = (again: string) => figureOf(again, 'glovebox_slots_made_total{outcome="success"}')
    expect(of(await metricsOf(front))).toBe(2)
  })

  it('show the package cache of the runner, and the installations of packages', async () => {
    const pip = { requests: { kept: 3, absent: 1 }, servedBytes: 20, fetchedBytes: 10 }
    const cache = { files: 2, usedBytes: 30, sizeBytes: 100, evicted: 4, managers: { pip } }
    front.metrics.packages.installing(1)
    front.metrics.packages.installed('failed', 1500)
    const figures = (await front.metrics.text({ ...(await front.runner.stats()), packages: cache })).split('\n')
    expect(figures).toEqual(
      expect.arrayContaining([
        'glovebox_package_cache_requests_total{manager="pip",outcome="kept"} 3',
        'glovebox_package_cache_requests_total{manager="pip",outcome="absent"} 1',
        'glovebox_package_cache_bytes_total{manager="pip",direction="served"} 20',
        'glovebox_package_cache_bytes_total{manager="pip",direction="fetched"} 10',
        'glovebox_package_cache_evicted_total 4',
        'glovebox_package_cache_files 2',
        'glovebox_package_cache_used_bytes 30',
        'glovebox_package_cache_size_bytes 100',
        'glovebox_package_installations 1',
        'glovebox_package_installations_total{outcome="failed"} 1',
        'glovebox_package_installation_seconds_total{outcome="failed"} 1.5',
      ]),
    )
    // A runner without a package cache has none of them.
    const without = await metricsOf(front)
    expect(without).not.toMatch(/^glovebox_package_cache_(?:requests|bytes|files|used|size)\w*[ {]/m)
    expect(figureOf(without, 'glovebox_package_installations')).toBe(1)
  })

  it('are separate for each instance', async () => {
    const other = await openFront()
    try {
      await execute({ code: 'echo 1' }, other)
      expect(figureOf(await metricsOf(other), 'glovebox_runs_total{language="bash",ending="exited"}')).toBe(1)
    } finally {
      await other.close()
    }
  })
})

describe('access to metrics', () => {
  it('requires a token of the whole instance outside dev mode', async () => {
    const public_ = await openFront(undefined, { dev: false })
    const token = async (settings: Omit<TokenSettings, 'name'>) =>
      (await createToken(public_.core.adminContext, operator, { name: 'prometheus', ...settings })).secret
    try {
      const org = await createOrg(public_.core.adminContext, operator, 'Acme')
      const status = async (secret?: string) =>
        (await fetch(`${public_.url}/metrics`, { headers: secret ? { authorization: `Bearer ${secret}` } : {} })).status
      expect(await status()).toBe(401)
      expect(await status('sk-gb-test-nobody')).toBe(401)
      expect(await status(await token({ role: 'owner', org_id: org.id }))).toBe(403)
      expect(await status(await token({ role: 'member' }))).toBe(200)
    } finally {
      await public_.close()
    }
  })
})

describe('the timings of a run', () => {
  it('are returned on request, with every phase', async () => {
    const names = ['queue_ms', 'slot_ms', 'jail_ms', 'host_ms', 'run_ms', 'drain_ms', 'record_ms']
    const asked = (await (await execute({ code: 'echo 1', timings: true })).json()) as { timings: object }
    expect(Object.keys(asked.timings)).toEqual(names)
    const call = async (more: object) => {
      const params = { name: 'sandbox_execute', arguments: { code: 'echo 1', language: 'bash', ...more } }
      const response = await front.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params })
      return ((await response.json()) as { result: { structuredContent: Record<string, unknown> } }).result
    }
    expect(Object.keys((await call({ timings: true })).structuredContent.timings as object)).toEqual(names)
    expect(await call({})).not.toHaveProperty('structuredContent.timings')
  })

  it('are stored in the row of the run, except the time to write that row', async () => {
    const { trace_id } = (await (await execute({ code: 'sleep 0.01' })).json()) as { trace_id: string }
    const timings = (await front.store.runs.get(trace_id))?.result?.timings
    expect(Object.keys(timings ?? {})).toEqual(['queueMs', 'slotMs', 'jailMs', 'hostMs', 'runMs', 'drainMs'])
    expect(timings?.runMs).toBeGreaterThan(0)
  })
})
