import { type Language, languages } from '../src/base/run.ts'
import type { Answer, GloveboxServer } from './glovebox-server.ts'
import { OciBundle } from './oci-bundle.ts'
import { bare, bubblewrap, callOf, type Launcher, oci, podman, unusable } from './one-process-per-run.ts'
import { PhaseLog, type Phases } from './phases.ts'
import { programs } from './programs.ts'
import { type Cell, type Measured, measure, type Pace } from './rounds.ts'

interface LatencyCell extends Cell {
  language: Language
  contender: string
}

export interface LatencyRow extends Measured {
  language: Language
  contender: string
  atOnce: number
  gapMs: number
}

export interface Latency {
  rows: LatencyRow[]
  /** Contenders that this machine does not have, and why. */
  absent: Record<string, string>
  phases: Phases[]
}

/** As between the calls of an agent: caches of the processor cool down a little. */
const pauseMs = 10

/**
 * Every language through every contender, one call at a time and several at once.
 * @param atOnce how many at once, besides one.
 * @param wanted which cells are measured, by id; those that they are compared with always are.
 */
export async function measureLatency(
  server: GloveboxServer,
  pace: Pace,
  atOnce: readonly number[],
  wanted: (id: string) => boolean,
  tell: (done: string) => void,
): Promise<Latency> {
  const bundle = new OciBundle()
  try {
    const { present, absent } = await tryOut([bubblewrap, oci('crun', bundle), oci('runc', bundle), podman(bundle)])
    const phases = new PhaseLog()
    const all = languages.flatMap((language) => cellsOf(language, server, present, atOnce, phases))
    const ids = new Set(all.filter(({ id }) => wanted(id)).flatMap(({ id, against }) => [id, against]))
    const cells = all.filter(({ id }) => ids.has(id))
    const measured = await measure(cells, pace, tell)
    const rows = cells.map(({ language, contender, atOnce, gapMs }, index) => {
      return { language, contender, atOnce, gapMs, ...measured[index]! }
    })
    return { rows, absent, phases: phases.medians() }
  } finally {
    bundle.remove()
  }
}

async function tryOut(
  launchers: readonly Launcher[],
): Promise<{ present: Launcher[]; absent: Record<string, string> }> {
  const present: Launcher[] = []
  const absent: Record<string, string> = {}
  for (const launcher of launchers) {
    const problem = await unusable(launcher, programs.python)
    if (problem === undefined) present.push(launcher)
    else absent[launcher.name] = problem
  }
  return { present, absent }
}

function cellsOf(
  language: Language,
  server: GloveboxServer,
  launchers: readonly Launcher[],
  atOnce: readonly number[],
  phases: PhaseLog,
): LatencyCell[] {
  const program = programs[language]
  const { code } = program
  const mcp = (log?: (answer: Answer, waitedMs: number) => void, thread?: () => string) => async () => {
    const calledMs = performance.now()
    const answer = await server.callTool(code, language, thread?.())
    requirePrinted(answer)
    log?.(answer, performance.now() - calledMs)
  }
  let threads = 0
  const rest = async () => requirePrinted(await server.execute(code, language))
  const logged = (gapMs: number) => mcp((answer, waitedMs) => phases.add(language, gapMs, answer, waitedMs))
  const cell = (contender: string, call: () => Promise<void>, load: { atOnce?: number; gapMs?: number } = {}) => {
    const { atOnce = 1, gapMs = 0 } = load
    const id = idOf(language, contender, atOnce, gapMs)
    const bareId = idOf(language, bare.name, atOnce, gapMs)
    return { id, language, contender, call, atOnce, gapMs, against: id === bareId ? undefined : bareId }
  }
  return [
    cell(bare.name, callOf(bare, program)),
    cell('glovebox MCP', logged(0)),
    cell('glovebox REST', rest),
    cell(bare.name, callOf(bare, program), { gapMs: pauseMs }),
    cell('glovebox MCP', logged(pauseMs), { gapMs: pauseMs }),
    cell(
      'glovebox MCP, warm thread',
      mcp(undefined, () => `warm-${language}`),
      { gapMs: pauseMs },
    ),
    cell(
      'glovebox MCP, new thread',
      mcp(undefined, () => `new-${language}-${++threads}`),
      { gapMs: pauseMs },
    ),
    ...launchers.map((launcher) => cell(launcher.name, callOf(launcher, program))),
    ...atOnce.flatMap((count) => [
      cell(bare.name, callOf(bare, program), { atOnce: count }),
      cell('glovebox MCP', mcp(), { atOnce: count }),
    ]),
  ]
}

const idOf = (language: Language, contender: string, atOnce: number, gapMs: number): string =>
  `${language}, ${contender}, ${atOnce} at once, ${gapMs} ms gaps`

function requirePrinted({ stdout, ending }: Answer): void {
  if (ending.kind === 'exited' && ending.code === 0 && stdout === '1\n') return
  throw new Error(`a run ended as ${JSON.stringify(ending)} and printed ${JSON.stringify(stdout.slice(0, 100))}`)
}
