import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { GloveboxServer } from './glovebox-server.ts'
import type { Contender } from './one-process-per-run.ts'
import { memoryOf, type Process, processes } from './process-figures.ts'

const lookEveryMs = 30

/**
 * Measures the memory of one run while it executes: all processes that serve only it, shared pages counted
 * proportionally, at the peak. Shared services are not counted: our front and runner, or the server of a library.
 * @param call runs a program that is idle for a while.
 * @param look returns the current bytes of the run.
 */
export async function runMemory(call: () => Promise<unknown>, look: () => number): Promise<number> {
  let ended = false
  const running = call().finally(() => {
    ended = true
  })
  let mostBytes = 0
  while (!ended) {
    mostBytes = Math.max(mostBytes, look())
    await sleep(lookEveryMs)
  }
  await running
  return mostBytes
}

/** Of the current runs of a contender. */
export function memoryOfRuns({ mark }: Contender): number {
  const all = processes()
  const isMarked = 'ancestor' in mark ? ({ parent }: Process) => parent === mark.ancestor : carries(mark.variable)
  const found = new Set(all.filter(isMarked).map(({ pid }) => pid))
  for (let before = -1; before !== found.size; ) {
    before = found.size
    for (const { pid, parent } of all) if (found.has(parent)) found.add(pid)
  }
  return pssOfAll([...found])
}

/** Of the largest slot: the one with the run. */
export const memoryOfSlot = (server: GloveboxServer): number =>
  Math.max(0, ...server.slots().map((members) => pssOfAll(members.map(({ pid }) => pid))))

const carries = (variable: string) => {
  const wanted = `${variable}=`
  return ({ pid }: Process): boolean => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'latin1')
        .split('\0')
        .some((pair) => pair.startsWith(wanted))
    } catch {
      return false // It ended meanwhile.
    }
  }
}

const pssOfAll = (pids: readonly number[]): number => pids.reduce((sum, pid) => sum + pssOf(pid), 0)

function pssOf(pid: number): number {
  try {
    return memoryOf(pid).pssBytes
  } catch {
    return 0 // It ended meanwhile.
  }
}
