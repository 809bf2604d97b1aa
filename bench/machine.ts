import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { cpus, loadavg, release, totalmem } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { measureCgroupMove } from './cgroup-move.ts'
import { busyCpuMs } from './process-figures.ts'
import { programs } from './programs.ts'

/** What a reader needs to compare this result with one of another machine. */
export interface Machine {
  revision: string
  takenAt: string
  kernel: string
  processors: string
  memoryGib: number
  cgroups: string
  cgroupMoveMs: number
  versions: Record<string, string>
  /** Share of all processors that other programs used before the benchmark: noise. */
  othersBusyShare: number
  loadAverage: number
}

const lookMs = 1_500

export async function describeMachine(root: string): Promise<Machine> {
  const before = busyCpuMs()
  await sleep(lookMs)
  const othersBusyMs = busyCpuMs() - before
  const processors = cpus()
  return {
    revision: revisionOf(root),
    takenAt: new Date().toISOString(),
    kernel: release(),
    processors: `${processors.length} × ${processors[0]?.model ?? 'unknown'}`,
    memoryGib: Math.round(totalmem() / 2 ** 30),
    cgroups: existsSync('/sys/fs/cgroup/cgroup.controllers') ? 'v2' : 'v1',
    cgroupMoveMs: await measureCgroupMove(),
    versions: {
      node: process.version,
      // What removes the types, in node.
      typescript: process.versions.amaro ?? 'unknown',
      python: firstLine(programs.python.argv[0], '--version'),
      bash: firstLine(programs.bash.argv[0], '--version'),
      crun: firstLine('crun', '--version'),
      runc: firstLine('runc', '--version'),
      bubblewrap: firstLine('bwrap', '--version'),
      podman: firstLine('podman', '--version'),
    },
    othersBusyShare: othersBusyMs / (lookMs * processors.length),
    loadAverage: loadavg()[0] ?? 0,
  }
}

/** Marked when relevant files differ from the commit. */
function revisionOf(root: string): string {
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'safe.directory=*', '-C', root, ...args], { encoding: 'utf8' }).trim()
  try {
    const changed = git('status', '--porcelain', '--', 'src', 'guest', 'bench', ':!bench/results')
    return `${git('rev-parse', '--short=12', 'HEAD')}${changed === '' ? '' : ' with local changes'}`
  } catch {
    return readRevisionFile(root)
  }
}

const readRevisionFile = (root: string): string =>
  `no repository; package ${(JSON.parse(readFileSync(`${root}/package.json`, 'utf8')) as { version: string }).version}`

function firstLine(program: string, ...args: string[]): string {
  try {
    return execFileSync(program, args, { encoding: 'utf8' }).split('\n')[0]!.trim()
  } catch {
    return 'not installed'
  }
}
