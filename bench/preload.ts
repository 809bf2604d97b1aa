import { existsSync } from 'node:fs'
import { mebibytes, shown, table } from './figures.ts'
import { GloveboxServer } from './glovebox-server.ts'
import { bare } from './one-process-per-run.ts'
import { type Cell, type Measured, measure, type Pace } from './rounds.ts'
import { memoryOfRuns, memoryOfSlot, runMemory } from './run-memory.ts'

export interface PreloadRow extends Measured {
  module: string
  contender: string
  memoryBytes: number
}

/** Debian's packages, in the /usr that sandboxes see; each with a little work, so that it is really loaded. */
const modules = [
  { name: 'numpy', code: 'import numpy\nprint(numpy.arange(10).sum())', prints: '45\n' },
  { name: 'pandas', code: 'import pandas\nprint(pandas.DataFrame({"a": [1, 2]}).a.sum())', prints: '3\n' },
  {
    name: 'matplotlib',
    imports: 'matplotlib.pyplot',
    code: 'import matplotlib.pyplot as plt\nprint(len(plt.plot([1, 2])))',
    prints: '1\n',
  },
]
const gapMs = 10

/**
 * Measures the first result of programs that import large modules: in a profile that preloads them, in one that does
 * not, and without Glovebox. Missing modules are listed.
 */
export async function measurePreload(
  pace: Pace,
  tell: (done: string) => void,
): Promise<{ rows: PreloadRow[]; absent: Record<string, string> }> {
  const there = modules.filter(({ name }) => existsSync(`/usr/lib/python3/dist-packages/${name}`))
  const missing = modules.filter((module) => !there.includes(module))
  const absent = Object.fromEntries(missing.map(({ name }) => [name, `python3-${name} is not installed`]))
  if (there.length === 0) return { rows: [], absent }
  // One slot for all: its memory is that of a profile for data analysis.
  const preload = there.map(({ name, imports = name }) => imports).join(',')
  const idle = ['--slot-idle-s', '600', '--limit-memory', '1GiB']
  const servers: GloveboxServer[] = []
  try {
    servers.push(await GloveboxServer.start([...idle, '--preload', preload]), await GloveboxServer.start(idle))
    const cells = there.flatMap((module) => cellsOf(module, servers))
    const memoryBytes: number[] = []
    for (const { call, look } of cells) {
      await call()
      memoryBytes.push(await runMemory(call, look))
    }
    const measured = await measure(cells, pace, (done) => tell(`preload, ${done}`))
    const rows = cells.map(({ module, contender }, index) => {
      return { ...measured[index]!, module, contender, memoryBytes: memoryBytes[index]! }
    })
    return { rows, absent }
  } finally {
    for (const server of servers) await server.stop()
  }
}

interface PreloadCell extends Cell {
  module: string
  contender: string
  look: () => number
}

function cellsOf({ name, code, prints }: (typeof modules)[number], servers: readonly GloveboxServer[]): PreloadCell[] {
  const common = { module: name, atOnce: 1, gapMs }
  const bareId = `${name} ${bare.name}`
  const program = { code, argv: ['/usr/bin/python3', '-I', '-c', code] as const, prints }
  const ours = ['preloaded', 'not preloaded'].map((way, index): PreloadCell => {
    const server = servers[index]!
    const call = async () => {
      const { stdout, ending } = await server.callTool(code, 'python')
      if (stdout !== prints) throw new Error(`${name} ended as ${JSON.stringify(ending)}, printed ${stdout}`)
    }
    const contender = `glovebox MCP, ${way}`
    return { ...common, contender, id: `${name} ${contender}`, call, against: bareId, look: () => memoryOfSlot(server) }
  })
  const alone = { contender: bare.name, id: bareId, call: bare.callOf(program), against: undefined }
  return [{ ...common, ...alone, look: () => memoryOfRuns(bare) }, ...ours]
}

/** Formats a section of the page. */
export function preloadPart({ rows, absent }: { rows: PreloadRow[]; absent: Record<string, string> }): string {
  const header = ['first result of', 'time ÷ bare', 'p50 ms', 'p95 ms', 'p99 ms', 'CPU ms/run', 'MiB', 'runs']
  const cells = rows.map((row) => [
    `${row.module}: ${row.contender}`,
    row.timeRatio === undefined ? '1' : `**${shown(row.timeRatio)}**`,
    ...[row.p50Ms, row.p95Ms, row.p99Ms, row.busyCpuMsPerRun].map(shown),
    mebibytes(row.memoryBytes),
    String(row.runs),
  ])
  const missing = Object.entries(absent).map(([name, reason]) => [`not measured: ${name}`, reason])
  return [
    '## Large modules',
    '',
    table(header, cells),
    ...(missing.length > 0 ? ['', table(['module', 'why'], missing)] : []),
    '',
    `Each program imports the module and uses it briefly; ${gapMs} ms between calls. "Preloaded" is a profile that names all`,
    'of them in `preload`; bare is the same program without isolation. MiB is the whole slot during the run.',
  ].join('\n')
}
