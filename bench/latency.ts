import { type Language, languages } from '../src/base/run.ts'
import { type Answer, GloveboxServer } from './glovebox-server.ts'
import { OciBundle } from './oci-bundle.ts'
import { bare, bubblewrap, type Contender, oci, podman, unusable } from './one-process-per-run.ts'
import { PhaseLog, type Phases } from './phases.ts'
import { holdingProgram, programs } from './programs.ts'
import { type Brief, type Cell, type Measured, measure, type Pace } from './rounds.ts'
import { memoryOfRuns, memoryOfSlot, runMemory } from './run-memory.ts'
import { SandboxRuntime } from './sandbox-runtime.ts'

interface LatencyCell extends Cell {
  language: Language
  contender: string
}

export interface LatencyRow extends Measured {
  language: Language
  contender: string
  atOnce: number
  gapMs: number
  /** Memory of one run while it executes; absent when it was not measured. */
  memoryBytes?: number
}

export interface Latency {
  rows: LatencyRow[]
  /** Contenders that are not available on this machine, with the reason. */
  absent: Record<string, string>
  phases: Phases[]
}

export const ourWarm = 'glovebox MCP'
/** A slot is ready, but every run starts a new interpreter. */
export const ourOwnInterpreter = 'glovebox MCP, own interpreter'
/** A new container for each run: nothing is reused. */
export const ourCold = 'glovebox MCP, cold slot'

/** As between the calls of an agent: processor caches cool down a little. */
const longPauseMs = 100
const pauseMs = 10

/** One server for each way in which the product can execute a run. */
interface OurServers {
  warm: GloveboxServer
  ownInterpreter: GloveboxServer
  cold: GloveboxServer
}

export interface LatencyPlan extends Pace {
  /** Numbers of parallel calls, besides one. */
  atOnce: readonly number[]
  /** For contenders and for our own slow paths: one call at a time, and several at once. */
  contenders: { alone: Brief; several: Brief }
}

/**
 * Measures every language with every contender, one call at a time and several at once.
 * @param wanted selects the measured cells by id; their baselines are always measured.
 */
export async function measureLatency(
  warm: GloveboxServer,
  plan: LatencyPlan,
  wanted: (id: string) => boolean,
  tell: (done: string) => void,
): Promise<Latency> {
  const undo: (() => Promise<void> | void)[] = []
  try {
    const ownInterpreter = await GloveboxServer.start(['--slot-idle-s', '600', '--no-prewarm-jails'])
    undo.push(() => ownInterpreter.stop())
    const cold = await GloveboxServer.start(['--slots-ready', '0', '--reuse', 'never'])
    undo.push(() => cold.stop())
    const { present, absent } = await contenders(undo)
    tell('contenders tried out')
    const phases = new PhaseLog()
    const servers = { warm, ownInterpreter, cold }
    const all = languages.flatMap((language) => cellsOf(language, servers, present, plan, phases))
    const ids = new Set(all.filter(({ id }) => wanted(id)).flatMap(({ id, against }) => [id, against]))
    const cells = all.filter(({ id }) => ids.has(id))
    const memory = await memories(cells, servers, present)
    tell('memory of a run')
    const measured = await measure(cells, plan, tell)
    const rows = cells.map(({ language, contender, atOnce, gapMs }, index) => {
      const memoryBytes = atOnce === 1 && gapMs === 0 ? memory.get(`${language} ${contender}`) : undefined
      return { language, contender, atOnce, gapMs, ...measured[index]!, ...(memoryBytes && { memoryBytes }) }
    })
    return { rows, absent, phases: phases.medians() }
  } finally {
    for (const step of undo.reverse()) await step()
  }
}

/** The contenders that are available on this machine, and why the others are not. */
async function contenders(undo: (() => Promise<void> | void)[]) {
  const bundle = new OciBundle()
  undo.push(() => bundle.remove())
  const absent: Record<string, string> = {}
  const tried: Contender[] = [bubblewrap, oci('crun', bundle), oci('runc', bundle)]
  tried.push(podman(bundle, 'crun'), podman(bundle, 'runc'))
  try {
    const sandboxRuntime = await SandboxRuntime.start()
    undo.push(() => sandboxRuntime.stop())
    tried.push(sandboxRuntime)
  } catch (error) {
    absent['sandbox-runtime'] = (error as Error).message
  }
  const present: Contender[] = []
  for (const contender of tried) {
    const problem = await unusable(contender, programs.python)
    if (problem === undefined) present.push(contender)
    else absent[contender.name] = problem
  }
  return { present, absent }
}

function cellsOf(
  language: Language,
  servers: OurServers,
  present: readonly Contender[],
  { atOnce, contenders: brief }: LatencyPlan,
  phases: PhaseLog,
): LatencyCell[] {
  const program = programs[language]
  const { code } = program
  const mcp = (server: GloveboxServer, more: { log?: number; thread?: () => string } = {}) => {
    return async () => {
      const calledMs = performance.now()
      const answer = await server.callTool(code, language, more.thread?.())
      requirePrinted(answer)
      if (more.log !== undefined) phases.add(language, more.log, answer, performance.now() - calledMs)
    }
  }
  type Load = { count?: number; gapMs?: number; brief?: Brief }
  const cell = (contender: string, call: () => Promise<void>, { count = 1, gapMs = 0, brief }: Load = {}) => {
    const id = idOf(language, contender, count, gapMs)
    const bareId = idOf(language, bare.name, count, gapMs)
    return {
      id,
      language,
      contender,
      call,
      atOnce: count,
      gapMs,
      brief,
      against: id === bareId ? undefined : bareId,
    }
  }
  const { warm, ownInterpreter, cold } = servers
  const others: [name: string, call: () => Promise<void>][] = [
    [ourOwnInterpreter, mcp(ownInterpreter)],
    [ourCold, mcp(cold)],
    ...present.map((contender): [string, () => Promise<void>] => [contender.name, contender.callOf(program)]),
  ]
  let threads = 0
  const gapMs = pauseMs
  return [
    cell(bare.name, bare.callOf(program)),
    cell(ourWarm, mcp(warm, { log: 0 })),
    cell('glovebox REST', async () => requirePrinted(await warm.execute(code, language))),
    cell(bare.name, bare.callOf(program), { gapMs }),
    cell(ourWarm, mcp(warm, { log: gapMs }), { gapMs }),
    cell(`${ourWarm}, warm thread`, mcp(warm, { thread: () => `warm-${language}` }), { gapMs }),
    cell(`${ourWarm}, new thread`, mcp(warm, { thread: () => `new-${language}-${++threads}` }), { gapMs }),
    // Longer than any interpreter takes to be ready again.
    cell(bare.name, bare.callOf(program), { gapMs: longPauseMs }),
    cell(ourWarm, mcp(warm), { gapMs: longPauseMs }),
    ...others.map(([name, call]) => cell(name, call, { brief: brief.alone })),
    ...atOnce.flatMap((count) => [
      cell(bare.name, bare.callOf(program), { count }),
      cell(ourWarm, mcp(warm), { count }),
      ...others.map(([name, call]) => cell(name, call, { count, brief: brief.several })),
    ]),
  ]
}

const idOf = (language: Language, contender: string, atOnce: number, gapMs: number): string =>
  `${language}, ${contender}, ${atOnce} at once, ${gapMs} ms gaps`

/** Bytes that a run uses while it executes, by language and contender. */
async function memories(
  cells: readonly LatencyCell[],
  servers: OurServers,
  present: readonly Contender[],
): Promise<Map<string, number>> {
  const ours: Record<string, GloveboxServer> = {
    [ourWarm]: servers.warm,
    [ourOwnInterpreter]: servers.ownInterpreter,
    [ourCold]: servers.cold,
  }
  const found = new Map<string, number>()
  for (const { language, contender, atOnce, gapMs } of cells) {
    if (atOnce > 1 || gapMs > 0) continue
    const program = holdingProgram(language)
    const server = ours[contender]
    const other = [bare, ...present].find(({ name }) => name === contender)
    if (server) {
      const call = () => server.callTool(program.code, language)
      await call() // The second one uses the prewarmed jail.
      found.set(`${language} ${contender}`, await runMemory(call, () => memoryOfSlot(server)))
    } else if (other) {
      found.set(`${language} ${contender}`, await runMemory(other.callOf(program), () => memoryOfRuns(other)))
    }
  }
  return found
}

function requirePrinted({ stdout, ending }: Answer): void {
  if (ending.kind === 'exited' && ending.code === 0 && stdout === '1\n') return
  throw new Error(`a run ended as ${JSON.stringify(ending)} and printed ${JSON.stringify(stdout.slice(0, 100))}`)
}
