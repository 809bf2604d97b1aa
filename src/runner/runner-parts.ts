import type { Images } from './images/images.ts'
import type { Inspect } from './inspection.ts'
import type { Runs } from './runs/runs.ts'
import type { Sandboxes } from './sandboxes/sandboxes.ts'
import type { OpenStorage } from './storage/storage.ts'

/** The modules of a runner that fronts use. */
export interface RunnerParts {
  runs: Runs
  /** Absent if the runner has no storage. */
  storage?: OpenStorage | undefined
  sandboxes: Sandboxes
  /** Absent if the runner has only the image of the machine. */
  images?: Images | undefined
  /** Absent if the runner reports nothing about itself. */
  inspect?: Inspect | undefined
}
