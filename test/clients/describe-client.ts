import { beforeAll, describe } from 'vitest'
import { type ClientName, install, installWithinMs, isAvailable } from './packages.ts'

/** Tests of a client that is installed first; skipped, with the reason in their title, if that is impossible. */
export async function describeClient(title: string, client: ClientName, tests: () => void): Promise<void> {
  if (!(await isAvailable(client))) {
    describe.skip(`${title} (no package registry)`, tests)
    return
  }
  describe(title, () => {
    beforeAll(() => install(client), installWithinMs)
    tests()
  })
}
