import { setTimeout as sleep } from 'node:timers/promises'
import { runtimeTools } from '../src/tools/runtime/tools.ts'
import { type Glovebox, Place } from '../test/support/glovebox.ts'
import { newKey, runCommand } from '../test/support/keys.ts'
import { failing, rightInput } from '../test/support/runtime-inputs.ts'
import { quantile, shown, table } from './figures.ts'

export interface IntrospectionPlan {
  rounds: number
  /** Duration of one block, at whose beginning every tool of its suite is called once. */
  blockS: number
  /** Runs of this many start each second, whatever becomes of earlier ones. */
  runsPerSecond: number
}

export interface IntrospectionRow {
  beside: string
  /** Tools that a block calls. */
  tools: number
  /** Median of the time that calling all of them took, in milliseconds. */
  suiteMs: number
  runs: number
  runsPerSecond: number
  p50Ms: number
  p99Ms: number
}

const code = { language: 'bash', code: 'echo 1' }

const reads = runtimeTools.filter(({ isWrite, name }) => !isWrite && !Object.hasOwn(failing, name))

/** The tools that each kind of block calls, one after the other. Profilers, which are marked as expensive, are apart. */
const suites: Readonly<Record<string, readonly string[]>> = {
  nothing: [],
  'every read tool': reads.filter(({ isExpensive }) => !isExpensive).map(({ name }) => name),
  'profilers too': reads.map(({ name }) => name),
}

/** Profiles take as long as they do by default, not as briefly as in tests. */
const input: Readonly<Record<string, object>> = { ...rightInput, node_get_hot_threads: {}, node_get_top_allocators: {} }

/** A server with its suite and what was measured. A profiler that stays prepared must not slow the others down. */
interface Measured {
  beside: string
  tools: readonly string[]
  run: () => Promise<unknown>
  ask: (name: string) => Promise<unknown>
  tookMs: number[]
  suiteMs: number[]
}

async function startFor(place: Place, beside: string, tools: readonly string[]): Promise<Measured> {
  const server = await place.start('--no-dev')
  const { headers } = await newKey(place)
  const { stdout } = await runCommand(place, ['tokens', 'create', '--role', 'owner', '--name', 'bench'])
  const token = { authorization: `Bearer ${stdout.trim()}` }
  const run = () => send(server, '/v1/sandbox/execute', code, headers)
  const ask = (name: string) => {
    const params = { name, arguments: input[name] ?? {} }
    return send(server, '/runtime/rpc', { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, token)
  }
  for (let warm = 0; warm < 50; warm++) await run()
  return { beside, tools, run, ask, tookMs: [], suiteMs: [] }
}

/** Measures what runs take while an operator asks the server everything, and while nobody asks, in turns. */
export async function measureIntrospection(
  plan: IntrospectionPlan,
  report: (done: string) => void,
): Promise<IntrospectionRow[]> {
  const places: Place[] = []
  try {
    const servers: Measured[] = []
    for (const [beside, tools] of Object.entries(suites)) {
      const place = new Place()
      places.push(place)
      servers.push(await startFor(place, beside, tools))
    }
    for (let round = 0; round < plan.rounds; round++) {
      // Each suite follows each other one.
      const order = round % 2 === 0 ? servers : servers.toReversed()
      for (const { tools, run, ask, tookMs, suiteMs } of order) {
        const asked = askAll(tools, ask)
        tookMs.push(...(await loaded(plan, run)))
        suiteMs.push(await asked)
      }
      report(`introspection, round ${round + 1}`)
    }
    return servers.map(({ beside, tools, tookMs, suiteMs }) => ({
      ...{ beside, tools: tools.length, suiteMs: quantile(suiteMs, 0.5), runs: tookMs.length },
      runsPerSecond: plan.runsPerSecond,
      ...{ p50Ms: quantile(tookMs, 0.5), p99Ms: quantile(tookMs, 0.99) },
    }))
  } finally {
    for (const place of places) await place.remove()
  }
}

/** Calls tools one after the other. @returns the time that this took, in milliseconds. */
async function askAll(tools: readonly string[], ask: (name: string) => Promise<unknown>): Promise<number> {
  const startedMs = performance.now()
  for (const name of tools) await ask(name)
  return performance.now() - startedMs
}

/** Runs code at a fixed rate. @returns the time that each run took, in milliseconds. */
async function loaded({ blockS, runsPerSecond }: IntrospectionPlan, run: () => Promise<unknown>): Promise<number[]> {
  const tookMs: number[] = []
  const timed = async () => {
    const calledMs = performance.now()
    await run()
    tookMs.push(performance.now() - calledMs)
  }
  const calls: Promise<void>[] = []
  const startedMs = performance.now()
  for (let count = 1; performance.now() - startedMs < blockS * 1000; count++) {
    calls.push(timed())
    await sleep(Math.max(0, startedMs + (count * 1000) / runsPerSecond - performance.now()))
  }
  await Promise.all(calls)
  return tookMs
}

/** @throws Error for a status other than 200, and for an error of JSON-RPC. */
async function send({ url }: Glovebox, path: string, body: object, headers: object): Promise<void> {
  const response = await fetch(url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
  const text = await response.text()
  if (response.status !== 200 || text.startsWith('{"jsonrpc":"2.0","id":1,"error"'))
    throw new Error(`${path} answered ${response.status} to ${JSON.stringify(body)}: ${text.slice(0, 300)}`)
}

export function introspectionPart(rows: readonly IntrospectionRow[]): string {
  const [alone] = rows
  const header = ['beside', 'p99 ÷ nothing', 'p50 ms', 'p99 ms', 'runs', 'tools', 'time of all tools, ms']
  const cells = rows.map((row) => [
    ...[row.beside, shown(row.p99Ms / alone!.p99Ms), shown(row.p50Ms), shown(row.p99Ms)],
    ...[String(row.runs), String(row.tools), shown(row.suiteMs)],
  ])
  return [
    '## Runs beside runtime tools',
    '',
    table(header, cells),
    '',
    `\`${code.code}\` in ${code.language} runs ${alone!.runsPerSecond} times a second; meanwhile every tool of the row is called, one after the`,
    'other, once in each block. Each row has a server of its own, and the blocks of the rows alternate. The clients share the',
    'processors with the server. Budget: 1.1.',
  ].join('\n')
}
