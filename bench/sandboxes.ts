import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { mebibytes, median, quantile, shown, table } from './figures.ts'
import { GloveboxServer } from './glovebox-server.ts'
import { type KernelFigures, measureKernels } from './kernels.ts'
import { OciBundle } from './oci-bundle.ts'

export interface SandboxFigure {
  operation: string
  ours: readonly number[]
  /** The same done by podman, and by a plain process of this machine, in the same rounds. */
  podman?: readonly number[]
  bare?: readonly number[]
}

export interface SandboxFigures {
  figures: SandboxFigure[]
  /** Start of a sandbox beside none, and beside many idle ones. */
  beside: { idle: number; startMs: readonly number[] }[]
  kernels: KernelFigures
  /** Why podman was not measured. */
  absent?: string
}

export interface SandboxPlan {
  rounds: number
  /** Idle sandboxes beside which another one is started. */
  idle: number
}

const execute = promisify(execFile)
const python = '/usr/bin/python3'

/** Limits and mounts as those of our default profile, over the same root directory. */
const podmanFlags = (rootfs: string): string[] => [
  ...['--network', 'none', '--ulimit', 'nofile=1024:1024', '--ulimit', 'nproc=1024:1024', '--memory', '512m'],
  ...['--pids-limit', '128', '--cpus', '1', '--volume', '/usr:/usr:ro', '--rootfs', rootfs],
]

/** Named sandboxes with their variables and processes, compared with podman and a plain process. */
export async function measureSandboxes(plan: SandboxPlan, report: (done: string) => void): Promise<SandboxFigures> {
  const places = ['--sandboxes-max', String(plan.idle + 4), '--slots-max', String(plan.idle + 40)]
  const server = await GloveboxServer.start(places)
  await server.liftLimits()
  const bundle = new OciBundle()
  const container = `glovebox-bench-${process.pid}`
  try {
    const absent = await startContainer(container, bundle.rootfs)
    const podman = absent === undefined ? ['podman', 'exec', container] : undefined
    const figures = [
      await measureStarts(server, plan.rounds, podman && bundle.rootfs),
      ...(await measureCalls(server, plan.rounds * 4, podman)),
    ]
    report('sandboxes beside podman')
    const beside = await measureBeside(server, plan)
    report(`${plan.idle} idle sandboxes`)
    const kernels = await measureKernels(plan.rounds * 4)
    report('kernels')
    return { figures, beside, kernels, ...(absent !== undefined && { absent }) }
  } finally {
    await execute('podman', ['rm', '--force', '--time', '0', container]).catch(() => undefined)
    await server.stop()
    bundle.remove()
  }
}

/** @returns why podman cannot be used here. */
async function startContainer(name: string, rootfs: string): Promise<string | undefined> {
  try {
    await execute('podman', ['run', '--detach', '--name', name, ...podmanFlags(rootfs), '/usr/bin/sleep', '3600'])
    return undefined
  } catch (error) {
    return (error as Error).message.trim().split('\n').at(-1)
  }
}

/** From the request until the first line of output. */
async function measureStarts(
  server: GloveboxServer,
  rounds: number,
  rootfs: string | undefined,
): Promise<SandboxFigure> {
  const ours: number[] = []
  const podman: number[] = []
  const bare: number[] = []
  const code = 'print(6 * 7)'
  const pause = () => server.idle()
  for (let round = 0; round < rounds; round += 1) {
    const sandbox = `start${round}`
    await pause()
    ours.push(await timed(() => startAndRun(server, sandbox, code)))
    await rpc(server, 'sandbox.stop', { sandbox })
    await server.call('DELETE', `/v1/sandboxes/${sandbox}`)
    await pause()
    if (rootfs !== undefined)
      podman.push(await firstOutputMs(['podman', 'run', '--rm', ...podmanFlags(rootfs), python, '-c', code]))
    bare.push(await firstOutputMs([python, '-c', code]))
  }
  return { operation: 'start to first result of Python', ours, ...(rootfs !== undefined && { podman }), bare }
}

async function measureCalls(
  server: GloveboxServer,
  rounds: number,
  podman: readonly string[] | undefined,
): Promise<SandboxFigure[]> {
  const sandbox = 'calls'
  await startAndRun(server, sandbox, 'x = 1')
  const calls: Record<'true' | 'x+1', number[]> = { true: [], 'x+1': [] }
  const ofPodman: number[] = []
  const bare: number[] = []
  for (let round = 0; round < rounds; round += 1) {
    calls.true.push(await timed(() => rpc(server, 'sandbox.command.run', { sandbox, command: 'true' })))
    calls['x+1'].push(await timed(() => runCode(server, sandbox, 'x+1')))
    if (podman && round % 4 === 0)
      ofPodman.push(await timed(() => execute(podman[0]!, [...podman.slice(1), '/usr/bin/true'])))
    bare.push(await timed(() => execute('/usr/bin/true', [])))
  }
  await server.call('DELETE', `/v1/sandboxes/${sandbox}`)
  return [
    { operation: 'command `true`', ours: calls.true, ...(podman && { podman: ofPodman }), bare },
    { operation: 'warm `x+1` in Python', ours: calls['x+1'] },
  ]
}

async function measureBeside(server: GloveboxServer, { idle, rounds }: SandboxPlan): Promise<SandboxFigures['beside']> {
  const beside: SandboxFigures['beside'] = []
  const measure = async (count: number) => {
    const startMs: number[] = []
    for (let round = 0; round < rounds; round += 1) {
      const sandbox = `beside${count}-${round}`
      await server.idle()
      startMs.push(await timed(() => rpc(server, 'sandbox.start', { sandbox })))
      await server.call('DELETE', `/v1/sandboxes/${sandbox}`)
    }
    beside.push({ idle: count, startMs })
  }
  await measure(0)
  for (let count = 0; count < idle; count += 1) await startAndRun(server, `idle${count}`, 'x = 1')
  await measure(idle)
  return beside
}

async function startAndRun(server: GloveboxServer, sandbox: string, code: string): Promise<void> {
  await rpc(server, 'sandbox.start', { sandbox })
  await runCode(server, sandbox, code)
}

const runCode = (server: GloveboxServer, sandbox: string, code: string): Promise<void> =>
  rpc(server, 'sandbox.repl.run', { sandbox, language: 'python', code })

async function rpc(server: GloveboxServer, method: string, params: object): Promise<void> {
  const said = await server.call('POST', '/api/v1/rpc', { jsonrpc: '2.0', id: 1, method, params })
  const { error, result } = said as { error?: { message: string }; result?: { status?: string } }
  if (error || result?.status === 'error') throw new Error(`${method}: ${JSON.stringify(said).slice(0, 300)}`)
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedMs = performance.now()
  await work()
  return performance.now() - startedMs
}

/** Returns the time until the first output, after the process has ended. */
async function firstOutputMs([program, ...args]: readonly string[]): Promise<number> {
  const startedMs = performance.now()
  const child = spawn(program!, args, { stdio: ['ignore', 'pipe', 'ignore'] })
  const ended = once(child, 'close')
  const first = await Promise.race([once(child.stdout, 'data'), ended])
  const tookMs = performance.now() - startedMs
  await ended
  if (!Buffer.isBuffer(first[0])) throw new Error(`${program} ended without output`)
  return tookMs
}

export function sandboxesPart({ figures, beside, kernels, absent }: SandboxFigures): string {
  const rows = figures.map(({ operation, ours, podman, bare }) => [
    operation,
    podman ? shown(median(ours) / median(podman)) : '',
    ...[median(ours), quantile(ours, 0.95)].map(shown),
    podman ? shown(median(podman)) : '',
    bare ? shown(median(bare)) : '',
  ])
  const header = ['named sandboxes', '÷ podman', 'p50 ms', 'p95 ms', 'podman p50 ms', 'plain process p50 ms']
  const startedAlone = median(beside[0]?.startMs ?? [])
  const starts = beside.map(({ idle, startMs }) => [
    `start beside ${idle} idle`,
    shown(median(startMs) / startedAlone),
    ...[median(startMs), quantile(startMs, 0.95)].map(shown),
  ])
  const atRunner = kernels.calls.map(({ what, tookMs }) => [
    what,
    ...[median(tookMs), quantile(tookMs, 0.95)].map(shown),
  ])
  return [
    '## Named sandboxes',
    '',
    table(header, rows),
    '',
    table(['', '÷ none', 'p50 ms', 'p95 ms'], starts),
    '',
    table(['at the runner', 'p50 ms', 'p95 ms'], atRunner),
    '',
    `Memory of a sandbox with an idle Python kernel: ${mebibytes(kernels.idleBytes)} MiB.`,
    'Calls go through `POST /api/v1/rpc`. podman runs and executes in the same root directory.',
    ...(absent === undefined ? [] : ['', `podman was not measured: ${absent}`]),
  ].join('\n')
}
