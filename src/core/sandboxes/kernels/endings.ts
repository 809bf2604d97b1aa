import type { ProcessEnding } from '../../../base/sandbox.ts'
import { parseAnswer, parseRestored } from './answers.ts'
import type { CallEnding, StateAfter } from './calls.ts'
import type { Outcome } from './kernel.ts'

/** Why a call is stopped. */
export type Stopped = 'timed_out' | 'interrupted'

/** Decides how a call ended, and what became of the state. @param why it was stopped, if it was. */
export function endingOf(
  outcome: Outcome,
  why: Stopped | undefined,
  limitMs: number,
): { ending: CallEnding; state: StateAfter; traceback?: string } {
  if (outcome.kind === 'process_ended')
    return { ending: why ? stopped(why, limitMs) : { kind: 'kernel_ended', ending: outcome.ending }, state: 'lost' }
  const { kind, payload } = outcome.frame
  if (kind === 'restored') {
    const ending: CallEnding = why ? stopped(why, limitMs) : { kind: 'kernel_ended', ending: parseRestored(payload) }
    return { ending, state: 'restored' }
  }
  const answer = parseAnswer(payload)
  const state = 'kept'
  switch (answer.kind) {
    case 'completed':
      // It ended by itself while it was being stopped, or handled the interrupt.
      return { ending: answer, state }
    case 'raised':
      if (why === undefined) return { ending: answer, state }
      return { ending: stopped(why, limitMs), state, traceback: answer.traceback }
    case 'exited':
      // A shell exits when it is interrupted, and a new one takes over its state.
      return { ending: why === undefined ? answer : stopped(why, limitMs), state }
    case 'interrupted':
      return { ending: stopped(why ?? 'interrupted', limitMs), state, traceback: answer.traceback }
  }
}

const stopped = (why: Stopped, limitMs: number): CallEnding =>
  why === 'timed_out' ? { kind: 'timed_out', limitMs } : { kind: 'interrupted' }

/** Why the state of a kernel was lost. */
export const causeOf = (ending: ProcessEnding): string => `the interpreter ${reasonOf(ending)}`

/** Why a process ended, as the end of a sentence about it. */
export function reasonOf(ending: ProcessEnding): string {
  switch (ending.kind) {
    case 'exited':
      return `exited with code ${ending.code}`
    case 'signaled':
      return `was ended by signal ${ending.signal}`
    case 'timed_out':
      return `was ended after ${ending.limitMs} ms`
    case 'out_of_memory':
      return `was killed because the sandbox reached its memory limit of ${ending.limitBytes} bytes`
    case 'not_started':
      return `did not start: ${ending.reason}`
    case 'sandbox_ended':
      return 'ended with its sandbox'
  }
}
