/**
 * What it costs that changed files of threads survive a power cut: runs that change a file, on two servers with the two
 * values of thread_durability, in turn. Threads that a run has changed are also stored in the background, so the last row
 * is a run that changes nothing while other threads are changed all the time. Depends on the disk of the temporary directory.
 *   node bench/thread-durability.ts [ROUNDS]
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { quantile, shown, table } from './figures.ts'
import { GloveboxServer } from './glovebox-server.ts'

const durabilities = ['seconds', 'answer'] as const
const rounds = Number(process.argv[2] ?? 20)
const callsPerRound = 10
const threads = 8

const change = 'echo changed >file'
const nothing = 'true'

interface Row {
  name: string
  latenciesMs: number[]
}

async function measure(server: GloveboxServer, row: Row, code: string, atOnce: number): Promise<void> {
  const client = async (n: number) => {
    for (let call = 0; call < callsPerRound; call++) {
      const startMs = performance.now()
      await server.callTool(code, 'bash', `thread-${n}`)
      row.latenciesMs.push(performance.now() - startMs)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, (_, n) => client(n)))
}

/** Changes other threads until it is stopped. */
async function changeOthers(server: GloveboxServer, stop: AbortSignal): Promise<void> {
  for (let n = 0; !stop.aborted; n++) await server.callTool(change, 'bash', `other-${n % threads}`)
}

const servers = await Promise.all(durabilities.map((value) => GloveboxServer.start(['--thread-durability', value])))
try {
  const rows: Row[] = []
  const cases = durabilities.map((durability, n) => {
    const own = [
      { name: `${durability}: a run that changes a file`, latenciesMs: [] },
      { name: `${durability}: the same, ${threads} threads at once`, latenciesMs: [] },
      { name: `${durability}: a run that changes nothing, beside runs that do`, latenciesMs: [] },
    ] satisfies Row[]
    rows.push(...own)
    return { server: servers[n]!, own }
  })
  for (const { server } of cases) await measure(server, { name: 'warm up', latenciesMs: [] }, change, threads)
  for (let round = 0; round < rounds; round++) {
    for (const { server, own } of cases) {
      await measure(server, own[0]!, change, 1)
      await measure(server, own[1]!, change, threads)
      const stopping = new AbortController()
      const beside = changeOthers(server, stopping.signal)
      await measure(server, own[2]!, nothing, 1)
      stopping.abort()
      await beside
      await sleep(10)
    }
  }
  const lines = rows.map(({ name, latenciesMs }) => [
    name,
    ...[0.5, 0.95, 0.99].map((share) => shown(quantile(latenciesMs, share))),
  ])
  console.log(table(['run', 'p50 ms', 'p95 ms', 'p99 ms'], lines))
} finally {
  await Promise.all(servers.map((server) => server.stop()))
}
