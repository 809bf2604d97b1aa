import { describe, expect, it } from 'vitest'
import { endingOf } from '../../../src/engine/jails/ending.ts'
import { testLimits as limits } from '../../support/engine-machine.ts'

const timedOut = { kind: 'timed_out', limitMs: 5 } as const
const tooMuch = { kind: 'output_limit', limitBytes: 9 } as const
const killed = { how: 'killed' } as const
const bySignal = (signal: number) => ({ how: 'signaled', signal }) as const
const withCode = (code: number) => ({ how: 'exited', code }) as const

describe('how a run ended', () => {
  it.each([
    ['its own exit', withCode(3), undefined, 0, { kind: 'exited', code: 3 }],
    ['its own exit, although a stop was under way', withCode(0), timedOut, 0, { kind: 'exited', code: 0 }],
    ['its own signal, although a stop was under way', bySignal(11), timedOut, 0, { kind: 'signaled', signal: 'SEGV' }],
    ['our kill', bySignal(9), timedOut, 0, timedOut],
    ['our kill of the whole jail', killed, { kind: 'cancelled' }, 0, { kind: 'cancelled' }],
    ['our kill, when memory had run out elsewhere in it', bySignal(9), timedOut, 1, timedOut],
    ['too much output, even when it exited', withCode(0), tooMuch, 0, tooMuch],
    ['a kill that was not ours', bySignal(9), undefined, 0, { kind: 'signaled', signal: 'KILL' }],
    ['memory', bySignal(9), undefined, 1, { kind: 'out_of_memory', limitBytes: limits.memoryBytes }],
    [
      'memory, as a shell tells it',
      withCode(137),
      undefined,
      1,
      { kind: 'out_of_memory', limitBytes: limits.memoryBytes },
    ],
    ['memory of the whole jail', killed, undefined, 2, { kind: 'out_of_memory', limitBytes: limits.memoryBytes }],
    ['a child killed for memory, the main process well', withCode(0), undefined, 1, { kind: 'exited', code: 0 }],
    ['137 of its own choice', withCode(137), undefined, 0, { kind: 'exited', code: 137 }],
    ['a signal without a name', bySignal(34), undefined, 0, { kind: 'signaled', signal: '34' }],
    ['an abort', bySignal(6), undefined, 0, { kind: 'signaled', signal: 'ABRT' }],
  ] as const)('is told as it was: %s', (_what, exit, stop, oomKills, ending) => {
    expect(endingOf(exit, stop, oomKills, limits)).toEqual(ending)
  })
})
