/**
 * Measures how long a run waits for its jail while processes of other runs read the list of their mounts, for which the
 * kernel has one lock: bash with a new jail for every run, and python with one that was made ahead a second before.
 * Run by hand: node bench/mount-readers.ts [readers]
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { median, quantile, shown, table } from './figures.ts'
import { GloveboxServer } from './glovebox-server.ts'

const loads = {
  nothing: undefined,
  // The same calls and as many processes, on a file that needs no such lock.
  '/proc/self/stat': '/proc/self/stat',
  '/proc/self/mountinfo': '/proc/self/mountinfo',
} as const

const runs = 4
const runsOf = [
  ['python', 'pass'],
  ['bash', 'exit 0'],
] as const
const jails = 15
/** Less than the time limit of the runs that read. */
const measuredMs = 22_000

const readersOf = (path: string, processes: number): string => `
import os
for _ in range(${processes} - 1):
    if os.fork() == 0: break
file = os.open('${path}', os.O_RDONLY)
while True:
    os.lseek(file, 0, 0)
    while os.read(file, 65536): pass
`

const readers = Number(process.argv[2] ?? 100)
const server = await GloveboxServer.start(['--slots-ready', '6', '--runs-per-org', '16'])
const rows: string[][] = []
try {
  for (const [name, path] of Object.entries(loads)) {
    const load = path && Array.from({ length: runs }, () => server.callTool(readersOf(path, readers / runs), 'python'))
    if (load) await sleep(3_000)
    const took = { bash: [] as number[], python: [] as number[] }
    for (const endMs = performance.now() + measuredMs; performance.now() < endMs && took.bash.length < jails; ) {
      for (const [language, code] of runsOf) {
        const { timings } = await server.callTool(code, language)
        took[language].push(timings.jail_ms + timings.host_ms)
      }
      await server.callTool('pass', 'python') // Makes the next jail for python.
      await sleep(1_000)
    }
    const figures = (took: readonly number[]) => [shown(median(took)), shown(quantile(took, 0.95))]
    rows.push([name, `${took.bash.length}`, ...figures(took.bash), ...figures(took.python)])
    await Promise.allSettled(load ?? [])
  }
} finally {
  await server.stop()
}
const header = ['what is read', 'runs', 'bash p50 (ms)', 'p95', 'python p50 (ms)', 'p95']
process.stdout.write(`${table(header, rows)}\n`)
