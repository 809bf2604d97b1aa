import { setTimeout as sleep } from 'node:timers/promises'
import { runtimeTools } from '../src/tools/runtime/tools.ts'
import { type Glovebox, Place } from '../test/support/glovebox.ts'
import { newKey, runCommand } from '../test/support/keys.ts'
import { failing, rightInput } from '../test/support/runtime-inputs.ts'
import { quantile, shown, table } from './figures.ts'

export interface IntrospectionPlan {
  rounds: number
  /** Duration of one block, in which every tool of its suite is called once. */
  blockS: number
}

export interface IntrospectionRow {
  beside: string
  /** Tools that a block calls. */
  tools: number
  /** Median of the time that calling all of them took, in milliseconds. */
  suiteMs: number
  runs: number
  p50Ms: number
  p99Ms: number
}

/** Runs of this code start at a fixed rate, whatever becomes of earlier ones. */
const runsPerSecond = 25
const code = { language: 'bash', code: 'echo 1' }

const reads = runtimeTools.filter(({ isWrite, name }) => !isWrite && !Object.hasOwn(failing, name))

/** The tools that each kind of block calls, one after the other. Profilers, which are marked as expensive, are apart. */
const suites: Readonly<Record<string, readonly string[]>> = {
  nothing: [],
  'every read tool': reads.filter(({ isExpensive }) => !isExpensive).map(({ name }) => name),
  'profilers too': reads.map(({ name }) => name),
}

/** Measures what runs take while an operator asks the server everything, and while nobody asks. */
export async function measureIntrospection(
  plan: IntrospectionPlan,
  report: (done: string) => void,
): Promise<IntrospectionRow[]> {
  const place = new Place()
  try {
    const server = await place.start('--no-dev')
    const { headers } = await newKey(place)
    const { stdout } = await runCommand(place, ['tokens', 'create', '--role', 'owner', '--name', 'bench'])
    const token = { authorization: `Bearer ${stdout.trim()}` }
    const post = (path: string, body: object, own: object) => send(server, path, body, own)
    const run = () => post('/v1/sandbox/execute', code, headers)
    const ask = (name: string) => {
      const params = { name, arguments: rightInput[name] ?? {} }
      return post('/runtime/rpc', { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, token)
    }
    for (let warm = 0; warm < 20; warm++) await run()
    const measured = new Map(
      Object.keys(suites).map((name) => [name, { tookMs: [] as number[], suiteMs: [] as number[] }]),
    )
    for (let round = 0; round < plan.rounds; round++) {
      for (const [name, tools] of Object.entries(suites)) {
        const { tookMs, suiteMs } = measured.get(name)!
        const asked = askAll(tools, ask)
        tookMs.push(...(await loaded(plan.blockS, run)))
        suiteMs.push(await asked)
      }
      report(`introspection, round ${round + 1}`)
    }
    return [...measured].map(([beside, { tookMs, suiteMs }]) => ({
      ...{ beside, tools: suites[beside]!.length, suiteMs: quantile(suiteMs, 0.5), runs: tookMs.length },
      ...{ p50Ms: quantile(tookMs, 0.5), p99Ms: quantile(tookMs, 0.99) },
    }))
  } finally {
    await place.remove()
  }
}

/** Calls tools one after the other. @returns the time that this took, in milliseconds. */
async function askAll(tools: readonly string[], ask: (name: string) => Promise<unknown>): Promise<number> {
  const startedMs = performance.now()
  for (const name of tools) await ask(name)
  return performance.now() - startedMs
}

/** Runs code at a fixed rate. @returns the time that each run took, in milliseconds. */
async function loaded(seconds: number, run: () => Promise<unknown>): Promise<number[]> {
  const tookMs: number[] = []
  const timed = async () => {
    const calledMs = performance.now()
    await run()
    tookMs.push(performance.now() - calledMs)
  }
  const calls: Promise<void>[] = []
  const startedMs = performance.now()
  for (let count = 1; performance.now() - startedMs < seconds * 1000; count++) {
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
    `\`${code.code}\` in ${code.language} runs ${runsPerSecond} times a second; meanwhile every tool of the row is called, one after the`,
    'other, once in each block. The clients share the processors with the server. Budget of the second row: 1.1.',
  ].join('\n')
}
