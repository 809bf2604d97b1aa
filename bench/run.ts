/**
 * Runs the benchmarks. Every published figure comes from here: one run, one table.
 *   npm run bench -- [--quick] [--only WORD]… [--name NAME]
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { measureAnswers } from './answer-bytes.ts'
import { measureBurst } from './burst.ts'
import { measureColdSlots } from './cold-slot.ts'
import { measureCrashes } from './crash.ts'
import { measureDownloads } from './downloads.ts'
import { measureEndlessOutput } from './endless-output.ts'
import { measureGateway } from './gateway/measure.ts'
import { GloveboxServer } from './glovebox-server.ts'
import { type HostilePlan, measureHostile } from './hostile.ts'
import { measureIntrospection } from './introspection.ts'
import { measureLargeFile } from './large-file.ts'
import { measureLatency } from './latency.ts'
import { describeMachine } from './machine.ts'
import { measureManyThreads } from './many-threads.ts'
import { measureCancel } from './mcp/cancel.ts'
import { measureMcp } from './mcp/measure.ts'
import { inOwnMountNamespace } from './mount-namespace.ts'
import { measureNetwork } from './network-pipe.ts'
import { measureOverload, overloadFlags } from './overload.ts'
import { measurePreload } from './preload.ts'
import { type Results, toMarkdown } from './report.ts'
import { measureResources } from './resources.ts'
import { measureSandboxes } from './sandboxes.ts'
import { measureSoak } from './soak.ts'
import { measureStorage } from './storage.ts'
import { measureThreadFiles } from './thread-files.ts'
import { measureWorkspace } from './workspace.ts'

const root = fileURLToPath(new URL('..', import.meta.url))

const triedPath = join(root, 'bench', 'results', 'tried.md')

const full = {
  rounds: 6,
  blockMs: 500,
  roundsWithinMs: 140_000,
  atOnce: [2, 4, 8],
  contenders: { alone: { rounds: 4, blockMs: 500 }, several: { rounds: 2, blockMs: 250 } },
  preloadRounds: 3,
  overload: { phaseS: 30, aloneS: 6, capacityS: 3 },
  coldSlots: 20,
  loadRuns: 400,
  endlessRuns: 100,
  storageRounds: 30,
  transferBytes: 1024 * 1024 * 1024,
  manyThreads: { threads: 2_000, warm: 200 },
  downloadRounds: 3,
  mcpRounds: 6,
  cancelRounds: 100,
  crashRounds: 200,
  soakMinutes: 20,
  hostile: { phaseS: 30, historyRows: 1_000_000 },
  introspection: { rounds: 9, blockS: 20, runsPerSecond: 25 },
  workspaceRounds: 100,
  gateway: { rounds: 8, blockMs: 1_000, streams: 1_000 },
  sandboxes: { rounds: 20, idle: 99 },
  network: { rounds: 7, transferBytes: 1024 * 1024 * 1024, runs: 300 },
}
const quick = {
  rounds: 2,
  blockMs: 250,
  roundsWithinMs: 15_000,
  atOnce: [4],
  contenders: { alone: { rounds: 1, blockMs: 250 }, several: { rounds: 1, blockMs: 100 } },
  preloadRounds: 1,
  overload: { phaseS: 4, aloneS: 2, capacityS: 1 },
  coldSlots: 5,
  loadRuns: 60,
  endlessRuns: 16,
  storageRounds: 5,
  transferBytes: 128 * 1024 * 1024,
  manyThreads: { threads: 100, warm: 20 },
  downloadRounds: 1,
  mcpRounds: 2,
  cancelRounds: 20,
  crashRounds: 8,
  soakMinutes: 1,
  hostile: { phaseS: 5, historyRows: 20_000 },
  introspection: { rounds: 1, blockS: 6, runsPerSecond: 25 },
  workspaceRounds: 8,
  gateway: { rounds: 2, blockMs: 300, streams: 200 },
  sandboxes: { rounds: 8, idle: 10 },
  network: { rounds: 2, transferBytes: 256 * 1024 * 1024, runs: 30 },
}

type Plan = Omit<typeof full, 'hostile'> & { hostile: HostilePlan }

const largeFileBytes = 3 * 1024 ** 3

const sections = [
  'preload',
  'load',
  'cold',
  'resources',
  'output',
  'answers',
  'mcp',
  'cancel',
  'storage',
  'downloads',
  'sandboxes',
  'network',
]
/** They take long, or gigabytes on the disk: only on request. */
const sectionsOnRequest = ['large', 'crash', 'soak', 'hostile', 'introspection', 'workspace', 'gateway']

const usage = `Usage: npm run bench -- [options]

Measures this machine and prints a Markdown page. A full run takes several minutes and is saved as
bench/results/latest.md and latest.json.

Options:
  --quick        a coarse run of about half a minute, saved only with --name
  --only WORD    one section, or the rows whose name contains WORD (python, runc, "4 at once"); may be repeated
                 sections: ${sections.join(', ')}
                 these run only when named: "large" transfers a 3 GiB file; "crash" kills processes under load, in 200
                 rounds; "soak" is 20 minutes of mixed load of every kind; "hostile" measures a good key beside hostile ones;
                 "introspection" measures runs beside calls of all runtime tools;
                 "workspace" installs other servers from npm and compares their tools; "gateway" installs other gateways
                 from npm and compares the relay with them
  --rounds N     crash rounds
  --minutes N    duration of the soak
  --attack WORD  only attacks of "hostile" whose name contains WORD; may be repeated
  --name NAME    save the results as bench/results/NAME.md and NAME.json
  --help         show this text
`

async function bench(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      only: { type: 'string', multiple: true, default: [] },
      name: { type: 'string' },
      rounds: { type: 'string' },
      minutes: { type: 'string' },
      attack: { type: 'string', multiple: true },
    },
  })
  const { quick: isQuick, only } = values
  const plan: Plan = { ...(isQuick ? quick : full) }
  if (values.rounds !== undefined) plan.crashRounds = Number(values.rounds)
  if (values.minutes !== undefined) plan.soakMinutes = Number(values.minutes)
  if (values.attack !== undefined) plan.hostile = { ...plan.hostile, attacks: values.attack }
  const results = await measureAll(plan, only, args)
  const page = toMarkdown(results, existsSync(triedPath) ? readFileSync(triedPath, 'utf8').trimEnd() : undefined)
  process.stdout.write(page)
  const name = values.name ?? (isQuick || only.length > 0 ? undefined : 'latest')
  if (name !== undefined) write(name, page, results)
}

/** Each section has its own server, so that none uses what another left warm. */
async function measureAll(plan: Plan, only: readonly string[], args: readonly string[]): Promise<Results> {
  const startedMs = performance.now()
  const report = (done: string) =>
    process.stderr.write(`${((performance.now() - startedMs) / 1000).toFixed(0)} s: ${done}\n`)
  const wants = (section: string) => only.length === 0 || only.includes(section)
  const cellNames = only.filter((word) => ![...sections, ...sectionsOnRequest].includes(word))
  const wantsCell = (id: string) => only.length === 0 || cellNames.some((word) => id.includes(word))

  const results: Results = { machine: await describeMachine(root), arguments: args, seconds: 0 }
  if (only.length === 0 || cellNames.length > 0) {
    // Rounds take longer than slots idle by default; otherwise some calls would measure a cold slot.
    await withServer(['--slot-idle-s', '600'], async (server) => {
      results.startToReadyMs = server.startToReadyMs
      results.latency = await measureLatency(server, plan, wantsCell, report)
    })
  }
  if (wants('preload')) results.preload = await measurePreload({ ...plan, rounds: plan.preloadRounds }, report)
  if (wants('load')) {
    results.burst = await withServer([], (server) => measureBurst(server))
    report('burst')
    results.overload = await withServer(overloadFlags, (server) => measureOverload(server, plan.overload))
    report('overload')
  }
  if (wants('cold')) {
    results.coldSlots = await measureColdSlots(plan.coldSlots)
    report('cold slots')
  }
  if (wants('resources')) {
    results.resources = await withServer([], (server) => measureResources(server, plan.loadRuns))
    report('resources')
  }
  if (wants('output')) {
    results.endlessOutput = await withServer([], (server) => measureEndlessOutput(server, plan.endlessRuns))
    report('endless output')
  }
  if (wants('answers')) results.answers = await withServer([], measureAnswers)
  if (wants('mcp')) results.mcp = await measureMcp({ rounds: plan.mcpRounds, blockMs: plan.blockMs }, report)
  if (wants('cancel')) {
    results.cancel = await withServer([], (server) => measureCancel(server, plan.cancelRounds))
    report('cancellation')
  }
  if (wants('storage')) {
    const storage = { rounds: plan.storageRounds, transferBytes: plan.transferBytes }
    results.storage = [
      ...(await measureStorage(storage)),
      ...(await measureManyThreads(plan.manyThreads)),
      ...(await measureThreadFiles(plan.transferBytes)),
    ]
    report('storage')
  }
  if (wants('sandboxes')) results.sandboxes = await measureSandboxes(plan.sandboxes, report)
  if (wants('network')) results.network = await measureNetwork(plan.network, report)
  if (wants('downloads')) {
    results.downloads = await measureDownloads({ ...plan, rounds: plan.downloadRounds })
    report('downloads')
  }
  await measureOnRequest(results, plan, only, report)
  results.seconds = (performance.now() - startedMs) / 1000
  return results
}

async function measureOnRequest(
  results: Results,
  plan: Plan,
  only: readonly string[],
  report: (done: string) => void,
): Promise<void> {
  if (only.includes('large')) {
    results.largeFile = await measureLargeFile(largeFileBytes)
    report('one large file')
  }
  if (only.includes('crash')) {
    results.crash = await measureCrashes(plan.crashRounds, report)
    if (results.crash.lost.length + results.crash.left.length > 0) process.exitCode = 1
  }
  if (only.includes('soak')) {
    results.soak = await measureSoak(plan.soakMinutes, report)
    if (results.soak.lost.length + results.soak.left.length > 0) process.exitCode = 1
  }
  if (only.includes('workspace')) {
    results.workspace = await measureWorkspace(plan.workspaceRounds)
    report('workspace tools')
  }
  if (only.includes('introspection')) {
    results.introspection = await measureIntrospection(plan.introspection, report)
  }
  if (only.includes('gateway')) results.gateway = await measureGateway(plan.gateway, report)
  if (only.includes('hostile')) results.hostile = await measureHostile(plan.hostile, report)
}

async function withServer<T>(flags: readonly string[], use: (server: GloveboxServer) => Promise<T>): Promise<T> {
  const server = await GloveboxServer.start(flags)
  try {
    return await use(server)
  } finally {
    await server.stop()
  }
}

function write(name: string, page: string, results: Results): void {
  const directory = join(root, 'bench', 'results')
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, `${name}.md`), page)
  writeFileSync(join(directory, `${name}.json`), `${JSON.stringify(results, undefined, 2)}\n`)
}

const args = process.argv.slice(2)
if (args.includes('--help')) process.stdout.write(usage)
else process.exitCode = await inOwnMountNamespace(import.meta.filename, args, bench)
