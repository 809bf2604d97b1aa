import { constants } from 'node:os'
import type { Ending, Limits, Signal } from '../../base/run.ts'
import type { Exit } from '../slots/guest-channel.ts'

/** Why the engine itself ended a run. */
export type Stop = Extract<Ending, { kind: 'timed_out' | 'out_of_memory' | 'output_limit' | 'cancelled' | 'shutdown' }>

/** What a shell exits with when its command died of SIGKILL: 128 + 9. */
const shellKilledCode = 128 + constants.signals.SIGKILL

/**
 * How the run ended. The first cause wins: what we stopped a run for, unless its main process had ended by itself
 * before. Too much output is an ending of its own, however fast the program was in ending, too.
 *
 * @param oomKills processes of the run that the kernel killed for memory, from its own counter.
 */
export function endingOf(exit: Exit, stop: Stop | undefined, oomKills: number, limits: Limits): Ending {
  if (stop?.kind === 'output_limit') return stop
  const wasKilled = exit.how === 'killed' || (exit.how === 'signaled' && exit.signal === constants.signals.SIGKILL)
  if (stop && wasKilled) return stop
  if (oomKills > 0 && (wasKilled || (exit.how === 'exited' && exit.code === shellKilledCode)))
    return { kind: 'out_of_memory', limitBytes: limits.memoryBytes }
  switch (exit.how) {
    case 'exited':
      return { kind: 'exited', code: exit.code }
    case 'signaled':
      return { kind: 'signaled', signal: nameOf(exit.signal) }
    case 'killed':
      return { kind: 'signaled', signal: 'KILL' }
  }
}

const names = new Map<number, Signal>()
// Where two names share a number (ABRT and IOT) the first listed is the usual one.
for (const [name, number] of Object.entries(constants.signals)) if (!names.has(number)) names.set(number, name.slice(3))

export const nameOf = (signal: number): Signal => names.get(signal) ?? String(signal)
