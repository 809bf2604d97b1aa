import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { median } from './figures.ts'
import type { GloveboxServer } from './glovebox-server.ts'
import { cpuMsOf, type Memory, memoryOf, type Process, rssBytesOf } from './process-figures.ts'
import { programs } from './programs.ts'

export interface Resources {
  front: { idle: Memory; afterLoad: Memory; peakRssBytes: number }
  runner: { idle: Memory; afterLoad: Memory; peakRssBytes: number }
  /** A slot between its runs, median of all; `cgroupBytes` is the memory that the kernel charges to it. */
  slotIdle: Memory & { cgroupBytes: number; slots: number }
  /** One python run, with four at once. */
  cpuMsPerRun: { front: number; runner: number; slots: number }
  runs: number
}

const atOnce = 4
const sampleEveryMs = 100

/**
 * Measures memory before, during and after load, and the processor time of a run in each of our processes.
 * @param server freshly started.
 * @param runs how many make up the load.
 */
export async function measureResources(server: GloveboxServer, runs: number): Promise<Resources> {
  const { front, runner } = server.parts()
  const idle = { front: memoryOf(front), runner: memoryOf(runner) }
  const { code } = programs.python
  const call = () => server.callTool(code, 'python')
  await Promise.all(Array.from({ length: atOnce }, call))

  const peaks = { front: 0, runner: 0 }
  const watch = setInterval(() => {
    peaks.front = Math.max(peaks.front, rssBytesOf(front))
    peaks.runner = Math.max(peaks.runner, rssBytesOf(runner))
  }, sampleEveryMs)
  const before = { front: cpuMsOf(front), runner: cpuMsOf(runner), slots: slotsCpuMs(server.instanceId) }
  let left = runs
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (left-- > 0) await call()
    }),
  )
  clearInterval(watch)
  const cpuMsPerRun = {
    front: (cpuMsOf(front) - before.front) / runs,
    runner: (cpuMsOf(runner) - before.runner) / runs,
    slots: (slotsCpuMs(server.instanceId) - before.slots) / runs,
  }
  return {
    front: { idle: idle.front, afterLoad: memoryOf(front), peakRssBytes: peaks.front },
    runner: { idle: idle.runner, afterLoad: memoryOf(runner), peakRssBytes: peaks.runner },
    slotIdle: slotMemory(server),
    cpuMsPerRun,
    runs,
  }
}

function slotMemory(server: GloveboxServer): Resources['slotIdle'] {
  const slots = server.slots()
  if (slots.length === 0) throw new Error('no slot was found')
  const memories = slots.map((members) => members.map(({ pid }) => memoryOf(pid)))
  const total = (name: keyof Memory) => memories.map((each) => each.reduce((sum, memory) => sum + memory[name], 0))
  return {
    pssBytes: median(total('pssBytes')),
    rssBytes: median(total('rssBytes')),
    cgroupBytes: median(slots.map((members) => chargedBytes(members))),
    slots: slots.length,
  }
}

/** All leaves of the slot together. */
function chargedBytes(members: readonly Process[]): number {
  const files = members.map(({ cgroups }) => {
    const v1 = /^\d+:memory:(.*)$/m.exec(cgroups)?.[1]
    const path = v1 ?? /^0::(.*)$/m.exec(cgroups)?.[1] ?? ''
    return v1 === undefined ? join(path, 'memory.current') : join('memory', path, 'memory.usage_in_bytes')
  })
  const bytes = [...new Set(files)].map((file) => Number(readFileSync(join('/sys/fs/cgroup', file), 'utf8')))
  return bytes.reduce((sum, each) => sum + each, 0)
}

/** All slots of an instance since it started, including removed ones. */
function slotsCpuMs(instanceId: string): number {
  const below = join('glovebox', instanceId)
  try {
    return Number(readFileSync(join('/sys/fs/cgroup/cpuacct', below, 'cpuacct.usage'), 'utf8')) / 1e6
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    const text = readFileSync(join('/sys/fs/cgroup', below, 'cpu.stat'), 'utf8')
    return Number(/^usage_usec (\d+)$/m.exec(text)?.[1]) / 1e3
  }
}
