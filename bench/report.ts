import { type AnswerFigure, answersPart } from './answer-bytes.ts'
import type { Burst } from './burst.ts'
import type { ColdSlot } from './cold-slot.ts'
import { type Crash, crashPart } from './crash.ts'
import { type DownloadFigure, downloadsPart } from './downloads.ts'
import type { EndlessOutput } from './endless-output.ts'
import { mebibytes, shown, table } from './figures.ts'
import { type GatewayFigures, gatewayPart } from './gateway/measure.ts'
import { type HostileRow, hostilePart } from './hostile.ts'
import { type IntrospectionRow, introspectionPart } from './introspection.ts'
import { type LargeFile, largeFilePart } from './large-file.ts'
import type { Latency } from './latency.ts'
import { beforeAndAfterPart, latencyPart } from './latency-report.ts'
import { loadPart } from './load-report.ts'
import type { Machine } from './machine.ts'
import { type CancelFigure, cancelPart } from './mcp/cancel.ts'
import type { McpFigure } from './mcp/measure.ts'
import { type NetworkFigures, networkPart } from './network-pipe.ts'
import type { Overload } from './overload.ts'
import type { Phases } from './phases.ts'
import { type PreloadRow, preloadPart } from './preload.ts'
import type { Resources } from './resources.ts'
import { type SandboxFigures, sandboxesPart } from './sandboxes.ts'
import { type Soak, soakPart } from './soak.ts'
import { type StorageFigure, storageTable } from './storage.ts'
import { type WorkspaceFigures, workspacePart } from './workspace.ts'

/** The results of one benchmark run. Sections that were not requested are absent. */
export interface Results {
  machine: Machine
  arguments: readonly string[]
  seconds: number
  startToReadyMs?: number
  latency?: Latency
  preload?: { rows: PreloadRow[]; absent: Record<string, string> }
  burst?: Burst
  overload?: Overload
  coldSlots?: { measured: ColdSlot[]; absent: Record<string, string> }
  resources?: Resources
  endlessOutput?: EndlessOutput
  answers?: AnswerFigure[]
  mcp?: McpFigure[]
  cancel?: CancelFigure[]
  storage?: StorageFigure[]
  downloads?: DownloadFigure[]
  network?: NetworkFigures
  largeFile?: LargeFile
  crash?: Crash
  soak?: Soak
  hostile?: HostileRow[]
  introspection?: IntrospectionRow[]
  workspace?: WorkspaceFigures
  gateway?: GatewayFigures
  sandboxes?: SandboxFigures
}

/**
 * Formats the results as a Markdown page.
 * @param tried optimizations that were tried and rejected, written by hand: there is nothing left to measure again.
 */
export function toMarkdown(results: Results, tried?: string): string {
  const { latency, preload, burst, overload, coldSlots, resources, endlessOutput, mcp, cancel, storage } = results
  return [
    '# Benchmark results',
    head(results),
    ...(latency ? [beforeAndAfterPart(latency.rows), latencyPart(latency), phasesPart(latency.phases)] : []),
    ...(preload ? [preloadPart(preload)] : []),
    ...(burst || overload ? [loadPart(burst, overload)] : []),
    ...(coldSlots ? [coldPart(coldSlots, results.startToReadyMs)] : []),
    ...(resources ? [resourcesPart(resources)] : []),
    ...(endlessOutput ? [outputPart(endlessOutput)] : []),
    ...(results.answers ? [answersPart(results.answers)] : []),
    ...(mcp ? [mcpPart(mcp)] : []),
    ...(cancel ? [cancelPart(cancel)] : []),
    ...(storage ? [`## Threads\n\n${storageTable(storage)}`] : []),
    ...(results.downloads ? [downloadsPart(results.downloads)] : []),
    ...(results.network ? [networkPart(results.network)] : []),
    ...(results.largeFile ? [largeFilePart(results.largeFile)] : []),
    ...(results.crash ? [crashPart(results.crash)] : []),
    ...(results.soak ? [soakPart(results.soak)] : []),
    ...(results.hostile ? [hostilePart(results.hostile)] : []),
    ...(results.introspection ? [introspectionPart(results.introspection)] : []),
    ...(results.sandboxes ? [sandboxesPart(results.sandboxes)] : []),
    ...(results.workspace ? [workspacePart(results.workspace)] : []),
    ...(results.gateway ? [gatewayPart(results.gateway)] : []),
    ...(tried === undefined ? [] : [tried]),
    '',
  ].join('\n\n')
}

/** Below this, noise of other programs is less than the difference between two runs on a quiet machine. */
const quietShare = 0.1
const busyWarning =
  '**Measured on a busy machine: absolute times are unreliable, and ratios vary as widely as their quartiles. Not for publication.**'

function head({ machine, arguments: args, seconds }: Results): string {
  const versions = Object.entries(machine.versions).map(([name, version]) => `${name}: ${version}`)
  return [
    `Revision ${machine.revision}, ${machine.takenAt}, \`npm run bench${args.length > 0 ? ` -- ${args.join(' ')}` : ''}\`, ${shown(seconds)} s.`,
    `Kernel ${machine.kernel}, ${machine.processors}, ${machine.memoryGib} GiB, cgroup ${machine.cgroups}; ${versions.join('; ')}.`,
    `Moving a process into another cgroup takes ${shown(machine.cgroupMoveMs)} ms here. A run contains no such move: its`,
    'processes are created under its limits. Creating a slot contains a few, and a kernel without favordynmods waits some',
    'milliseconds for each.',
    `Before the start other programs used ${shown(machine.othersBusyShare * 100)} % of the processors (load ${shown(machine.loadAverage)}).`,
    ...(machine.othersBusyShare < quietShare ? [] : ['', busyWarning]),
    '',
    'Machines differ: compare the ratios. All contenders were measured in turn, in small blocks, on one machine; figures',
    'are medians of blocks, and p99 is of all calls. The client runs on the same processors.',
  ].join('\n')
}

function phasesPart(phases: readonly Phases[]): string {
  const header = ['one call through MCP', 'share of jail + run', 'queue', 'slot', 'jail', 'run', 'other', 'total, ms']
  const cells = phases.map((each) => [
    `${each.language}, ${each.gapMs} ms gaps`,
    shown((each.jailMs + each.runMs) / each.totalMs),
    ...[each.queueMs, each.slotMs, each.jailMs, each.runMs, each.restMs, each.totalMs].map(shown),
  ])
  return [
    '## Where the time goes',
    '',
    table(header, cells),
    '',
    'Medians, computed per column. "Run" lasts from the first instruction of the program until its last process is gone;',
    '"other" is HTTP, the front, its database and the connection to the runner.',
  ].join('\n')
}

function coldPart({ measured, absent }: NonNullable<Results['coldSlots']>, startToReadyMs: number | undefined): string {
  const fastest = Math.min(...measured.map(({ p50Ms }) => p50Ms))
  const header = ['slot created on demand', '÷ fastest', 'p50 ms', 'p95 ms', 'slots', 'program start to ready, ms']
  const cells = measured.map(({ runtime, p50Ms, p95Ms, slots, startToReadyMs }) => [
    ...[runtime, shown(p50Ms / fastest), shown(p50Ms), shown(p95Ms), String(slots), shown(startToReadyMs)],
  ])
  const missing = Object.entries(absent).map(([name, reason]) => `${name}: ${reason}`)
  return [
    '## Cold slots and start',
    '',
    table(header, cells),
    ...(startToReadyMs === undefined ? [] : ['', `With two ready slots (the default): ${shown(startToReadyMs)} ms.`]),
    ...(missing.length > 0 ? ['', `Not measured: ${missing.join('; ')}`] : []),
  ].join('\n')
}

function resourcesPart({ front, runner, slotIdle, cpuMsPerRun, runs }: Resources): string {
  const header = ['memory, MiB', 'idle PSS', 'idle RSS', 'after load PSS', 'after load RSS', 'peak RSS under load']
  const part = (name: string, { idle, afterLoad, peakRssBytes }: Resources['front']) => [
    name,
    ...[idle.pssBytes, idle.rssBytes, afterLoad.pssBytes, afterLoad.rssBytes, peakRssBytes].map(mebibytes),
  ]
  const slot = [
    'a slot between runs, all its processes',
    mebibytes(slotIdle.pssBytes),
    mebibytes(slotIdle.rssBytes),
    '',
    '',
    '',
  ]
  const { front: frontMs, runner: runnerMs, slots: slotsMs } = cpuMsPerRun
  const all = frontMs + runnerMs + slotsMs
  const share = (ms: number) => `${shown(ms)} ms (${shown((ms / all) * 100)} %)`
  return [
    '## Memory and processor time',
    '',
    table(header, [part('front', front), part('runner', runner), slot]),
    '',
    `Memory that the kernel charges to such a slot: ${mebibytes(slotIdle.cgroupBytes)} MiB (medians of ${slotIdle.slots} slots).`,
    '',
    `Processor time of one python run, ${atOnceInWords} of ${runs}: front ${share(frontMs)}, runner ${share(runnerMs)}, slot ${share(slotsMs)}.`,
  ].join('\n')
}

const atOnceInWords = 'four at once'

function outputPart({ runs, atOnce, outputBytes, seconds, front, runner }: EndlessOutput): string {
  const header = ['endless output', 'last third ÷ first', 'first MiB', 'last MiB', 'peak MiB']
  const part = (name: string, { afterBatchBytes, peakBytes, lastToFirst }: EndlessOutput['front']) => [
    ...[name, shown(lastToFirst), mebibytes(afterBatchBytes[0]!), mebibytes(afterBatchBytes.at(-1)!)],
    mebibytes(peakBytes),
  ]
  const gibibytes = outputBytes / 2 ** 30
  return [
    '## Memory under endless output',
    '',
    table(header, [part('front', front), part('runner', runner)]),
    '',
    `${runs} programs with endless output, ${atOnce} at once, each ended by its output limit: ${shown(gibibytes)} GiB in ${shown(seconds)} s.`,
  ].join('\n')
}

function mcpPart(figures: readonly McpFigure[]): string {
  const header = ['protocol only', 'connections', 'rate ÷ constant', 'requests/s', 'p50 ms', 'p99 ms', 'RSS MiB']
  const rows = figures.map((figure) => [
    `${figure.what}: ${figure.server}`,
    String(figure.connections),
    ...[figure.againstBare, figure.requestsPerSecond, figure.p50Ms, figure.p99Ms].map(shown),
    mebibytes(figure.rssBytes),
  ])
  return [
    '## Protocol',
    '',
    table(header, rows),
    '',
    'Each server is a separate process and offers one tool that returns immediately; ours includes authentication and all',
    'request checks. "Constant" is `node:http` with one fixed response. The client shares the processors with them.',
  ].join('\n')
}
