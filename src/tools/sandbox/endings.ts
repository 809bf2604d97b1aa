import type { ProcessEnding } from '../../base/sandbox.ts'

const MiB = 1024 * 1024

/** Describes how a process ended, for models. */
export function describeEnding(ending: ProcessEnding): string {
  switch (ending.kind) {
    case 'exited':
      return `exited with code ${ending.code}${killedForMemory(ending.oomKills)}`
    case 'signaled':
      return `was ended by the signal ${ending.signal}`
    case 'timed_out':
      return `was killed after its timeout of ${ending.limitMs / 1_000} s. Use a longer timeout, or start it in the background with sandbox_processes`
    case 'out_of_memory':
      return `was killed because the sandbox reached its memory limit of ${Math.round(ending.limitBytes / MiB)} MiB`
    case 'not_started':
      return `could not be started: ${ending.reason}`
    case 'sandbox_ended':
      return 'ended with its sandbox'
  }
}

/** Such as a program that a shell started: the shell itself exits normally. */
const killedForMemory = (count: number | undefined): string =>
  count === undefined
    ? ''
    : `. While it ran, the sandbox reached its memory limit and the kernel killed ${count === 1 ? 'a process' : `${count} processes`} in it`
