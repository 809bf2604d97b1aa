import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createToken } from '../../src/core/admin/tokens.ts'
import { unpackDebian } from '../support/debian-packages.ts'
import { type Front, openFront } from '../support/front.ts'
import { freePort } from '../support/glovebox.ts'

const execute = promisify(execFile)
const deploy = join(import.meta.dirname, '../../deploy')
const prometheus = await unpackDebian('prometheus')
const program = (name: string): string => join(prometheus ?? '', 'usr/bin', name)

let front: Front
let token: string
beforeAll(async () => {
  front = await openFront(undefined, { dev: false })
  token = (await createToken(front.core.adminContext, operator, { name: 'prometheus', role: 'member' })).secret
  // Every metric that alerts and the dashboard use has a value.
  front.metrics.calledUpstream('acme/notes', true, 12, 1)
  front.metrics.refused('queue_full')
  front.metrics.ran({ id: 'trc_a', language: 'python', orgId: 'org_a' }, 'failed', null)
  front.metrics.ran({ id: 'trc_b', language: 'python', orgId: 'org_a' }, 'exited', {
    queueMs: 1,
    slotMs: 1,
    jailMs: 1,
    hostMs: 1,
    runMs: 1,
    drainMs: 1,
  })
})
afterAll(() => front.close())

const metricsText = async (): Promise<string> =>
  (await fetch(`${front.url}/metrics`, { headers: { authorization: `Bearer ${token}` } })).text()

describe('the files in deploy/', () => {
  it('use metrics that the server has', async () => {
    const text = await metricsText()
    const had = new Set([...text.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name))
    const files = ['prometheus/alerts.yml', 'grafana/glovebox.json'].map((path) =>
      readFileSync(join(deploy, path), 'utf8'),
    )
    const used = new Set(files.flatMap((file) => file.match(/\bglovebox_[a-z_]+/g) ?? []))
    expect(used.size).toBeGreaterThan(20)
    expect([...used].filter((name) => !had.has(name.replace(/_(?:bucket|sum|count)$/, '')))).toEqual([])
  })

  it('contain a dashboard whose panels have distinct IDs and queries', () => {
    const { panels } = JSON.parse(readFileSync(join(deploy, 'grafana/glovebox.json'), 'utf8')) as {
      panels: { id: number; targets: { expr: string }[] }[]
    }
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    expect(panels.every(({ targets }) => targets.length > 0)).toBe(true)
  })
})

describe.skipIf(prometheus === undefined)('Prometheus of Debian', () => {
  it('accepts the alert rules and the configuration', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'glovebox-prometheus-'))
    try {
      cpSync(join(deploy, 'prometheus'), directory, { recursive: true })
      writeFileSync(join(directory, 'token'), token)
      const { stdout } = await execute(program('promtool'), ['check', 'config', join(directory, 'prometheus.yml')])
      expect(stdout).toContain('16 rules found')
    } finally {
      rmSync(directory, { recursive: true })
    }
  })

  it('finds nothing to criticize in the metrics', async () => {
    const child = spawn(program('promtool'), ['check', 'metrics'], { stdio: ['pipe', 'pipe', 'pipe'] })
    let said = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text: Buffer) => (said += text))
    child.stdin.end(await metricsText())
    await once(child, 'close')
    expect(said).toBe('')
  })

  it('scrapes the server with a token, and evaluates the rules', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'glovebox-prometheus-'))
    const port = await freePort()
    cpSync(join(deploy, 'prometheus'), directory, { recursive: true })
    writeFileSync(join(directory, 'token'), token)
    const config = readFileSync(join(directory, 'prometheus.yml'), 'utf8')
      .replace('15s', '1s')
      .replace('127.0.0.1:5555', `127.0.0.1:${front.port}`)
    writeFileSync(join(directory, 'prometheus.yml'), config)
    const child = spawn(
      program('prometheus'),
      ['--config.file=prometheus.yml', '--storage.tsdb.path=data', `--web.listen-address=127.0.0.1:${port}`],
      { cwd: directory, stdio: 'ignore' },
    )
    const ask = async (path: string) => {
      try {
        return (await (await fetch(`http://127.0.0.1:${port}/api/v1/${path}`)).json()) as { data: unknown }
      } catch {
        return { data: undefined }
      }
    }
    const latest = async (query: string) =>
      (
        (await ask(`query?query=${encodeURIComponent(query)}`)).data as
          | { result: { value: [number, string] }[] }
          | undefined
      )?.result[0]?.value[1]
    try {
      await expect.poll(() => latest('up{job="glovebox"}'), { timeout: 60_000, interval: 200 }).toBe('1')
      await expect.poll(() => latest('glovebox_upstream_failing{server="acme/notes"}'), { timeout: 30_000 }).toBe('1')
      const { data } = await ask('rules')
      const [group] = (data as { groups: { rules: { name: string; lastError?: string }[] }[] }).groups
      expect(group!.rules.filter(({ lastError }) => lastError)).toEqual([])
    } finally {
      child.kill('SIGTERM')
      await once(child, 'close')
      rmSync(directory, { recursive: true })
    }
  })
})
