import type { SandboxRowState } from '../../store/sandbox-rows.ts'

/** What can happen to a sandbox. */
export type SandboxChange =
  /** A caller starts it, or the crash policy does. */
  | 'start'
  /** The runner reports that it runs. */
  | 'started'
  /** The runner could not start it. */
  | 'failed'
  | 'pause'
  | 'resume'
  | 'stop'
  /** The runner reports that it has stopped. */
  | 'stopped'
  /** The runner reports a crash, or lost the sandbox. */
  | 'crash'
  | 'remove'

/** The state after each change; a change that a state does not list is not possible in it. */
export const transitions: Readonly<Record<SandboxRowState, Readonly<Partial<Record<SandboxChange, SandboxRowState>>>>> =
  {
    starting: { started: 'running', failed: 'crashed', crash: 'crashed', stopped: 'stopped', remove: 'removing' },
    running: { pause: 'paused', stop: 'stopping', stopped: 'stopped', crash: 'crashed', remove: 'removing' },
    paused: { resume: 'running', stop: 'stopping', stopped: 'stopped', crash: 'crashed', remove: 'removing' },
    // A crash ends a sandbox that was stopping as well as the stop would have.
    stopping: { stopped: 'stopped', crash: 'stopped', remove: 'removing' },
    stopped: { start: 'starting', remove: 'removing' },
    crashed: { start: 'starting', stop: 'stopped', remove: 'removing' },
    removing: {},
  }

/** Returns the states in which a change is possible, by the state that it leads to. */
export function sourcesOf(change: SandboxChange): Map<SandboxRowState, SandboxRowState[]> {
  const sources = new Map<SandboxRowState, SandboxRowState[]>()
  for (const [from, changes] of Object.entries(transitions) as [SandboxRowState, (typeof transitions)['running']][]) {
    const to = changes[change]
    if (to !== undefined) sources.set(to, [...(sources.get(to) ?? []), from])
  }
  return sources
}
