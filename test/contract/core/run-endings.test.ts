import { describe, expect, it } from 'vitest'
import { RunEndings } from '../../../src/core/runs/run-endings.ts'

const never = 2 ** 30

async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false
  void promise.then(() => {
    settled = true
  })
  await new Promise((resolve) => setImmediate(resolve))
  return settled
}

describe('the ending of a run', () => {
  it('is announced to everything that watches the run', async () => {
    const endings = new RunEndings()
    const watches = [endings.watch('trc_1'), endings.watch('trc_1')]
    const changes = watches.map((watch) => watch.changed(never))
    const other = endings.watch('trc_2').changed(50)
    expect(await isSettled(Promise.race([...changes, other]))).toBe(false)
    endings.announce('trc_1')
    await Promise.all(changes)
    expect(await isSettled(other)).toBe(false)
    await other
  })

  it('is not missed when it is announced before it is waited for', async () => {
    const endings = new RunEndings()
    const watch = endings.watch('trc_1')
    endings.announce('trc_1')
    await watch.changed(never)
    expect(await isSettled(watch.changed(20))).toBe(false)
  })

  it('is looked for again after a time, since another process may have written it', async () => {
    const watch = new RunEndings().watch('trc_1')
    await watch.changed(1)
    await watch.changed(1)
  })

  it('is no longer announced to a watch that was stopped', async () => {
    const endings = new RunEndings()
    const watch = endings.watch('trc_1')
    const left = endings.watch('trc_1')
    left.stop()
    endings.announce('trc_1')
    await watch.changed(never)
    expect(await isSettled(left.changed(20))).toBe(false)
  })
})
