import type { Ending, Language, Timings } from '../base/run.ts'
import type { Tracing } from './tracing.ts'

/** Returns the span of a run and those of its phases: the queue, the slot, its jail, and the program in it. */
export const spansOf = (
  runId: string,
  language: Language,
  ending: Ending['kind'],
  { queueMs, slotMs, jailMs, hostMs, runMs, drainMs, recordMs = 0 }: Timings,
): Parameters<Tracing['record']> => [
  `run ${language}`,
  {
    ...{ 'runner queue': queueMs, 'runner slot': slotMs, 'runner jail': jailMs, 'runner interpreter': hostMs },
    ...{ 'jail program': runMs, 'runner drain': drainMs, 'store ending': recordMs },
  },
  { 'glovebox.run_id': runId, 'glovebox.language': language, 'glovebox.ending': ending },
  ending === 'failed',
]
