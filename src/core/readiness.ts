import type { Runner } from '../runner/protocol/messages.ts'
import type { Store } from '../store/store.ts'

/**
 * Returns whether runs can start and threads can be created, and if not, why. Runs without a thread may still be possible.
 * @param isRecovered whether the runs of before a restart have been recovered.
 */
export function readinessOf(
  { diskProblem }: Pick<Store, 'diskProblem'>,
  { readiness, storageProblem }: Pick<Runner, 'readiness' | 'storageProblem'>,
  isRecovered: boolean,
): Runner['readiness'] {
  if (diskProblem !== undefined) return notReady(`the database cannot be written: ${diskProblem}`)
  if (!readiness.ready) return readiness
  if (!isRecovered) return notReady('runs of before the restart are being recovered')
  return storageProblem === undefined ? readiness : notReady(storageProblem)
}

const notReady = (reason: string) => ({ ready: false, reason }) as const
