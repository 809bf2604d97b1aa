/** Promise 3: a run cannot outlive its end. */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Ending, Limits } from '../../src/base/run.ts'
import { compile, plain } from '../support/attacks.ts'
import { endProcesses, processesWith } from '../support/processes.ts'
import { attack, Bench, type BenchSlot, benchMissing, runtimesHere } from '../support/slot-bench.ts'

const token = () => `glovebox-survivor-${randomBytes(8).toString('hex')}`
const survivors = benchMissing === undefined ? compile('survivors') : ''

describe.skipIf(benchMissing !== undefined)('a plain process', () => {
  const mark = token()
  afterEach(() => endProcesses(mark))

  it('leaves all of its children behind when it exits', async () => {
    // Without their output: a plain caller that waits for the end of it would wait forever.
    const { stdout } = await plain('sh', '-c', `"$0" ${mark} exit >/dev/null 2>&1 & wait $!; echo over`, survivors)
    expect(stdout).toBe('over\n')
    expect(processesWith(mark).length).toBeGreaterThanOrEqual(6)
  })
})

const cases: [end: string, limits: Partial<Limits>, ending: Ending][] = [
  ['exit', {}, { kind: 'exited', code: 0 }],
  ['signal', {}, { kind: 'signaled', signal: 'TERM' }],
  ['crash', {}, { kind: 'signaled', signal: 'SEGV' }],
  ['wait', { timeoutMs: 1_000 }, { kind: 'timed_out', limitMs: 1_000 }],
  ['flood', { outputHardBytes: 1_000_000 }, { kind: 'output_limit', limitBytes: 1_000_000 }],
  ['memory', { memoryBytes: 64 * 1024 * 1024 }, { kind: 'out_of_memory', limitBytes: 64 * 1024 * 1024 }],
]

describe.skipIf(benchMissing !== undefined).each(runtimesHere)('a run in a slot of %s', (runtime) => {
  let bench: Bench
  beforeAll(async () => {
    bench = await Bench.open(runtime)
  })
  afterAll(() => bench?.close())

  const leavesNothing = async (slot: BenchSlot, mark: string) => {
    expect(processesWith(mark)).toEqual([])
    // Not only hidden: the slot contains its guest, and serves the next run.
    expect(await slot.bash('cd /proc && echo [0-9]*')).toMatchObject({
      ending: { kind: 'exited', code: 0 },
      stdout: '1 2\n',
    })
    expect(await slot.state()).toMatchObject({ healthy: true })
    await slot.destroy()
  }

  it.each(cases)('leaves no process when it ends by %s', async (end, limits, ending) => {
    const mark = token()
    const slot = await bench.slot(limits)
    const run = slot.start(attack(survivors, mark, end))
    await run.prints('left 6')
    const outcome = await run.ended
    expect(outcome.ending).toEqual(ending)
    await leavesNothing(slot, mark)
  })

  it('leaves no process when it is cancelled', async () => {
    const mark = token()
    const slot = await bench.slot()
    const run = slot.start(attack(survivors, mark, 'wait'))
    await run.prints('left 6')
    expect(processesWith(mark).length).toBeGreaterThanOrEqual(6) // they do live in the jail before
    run.stop()
    expect((await run.ended).ending).toEqual({ kind: 'cancelled' })
    await leavesNothing(slot, mark)
  })

  it('leaves no process when its slot is destroyed during the run', async () => {
    const mark = token()
    const slot = await bench.slot()
    const run = slot.start(attack(survivors, mark, 'wait'))
    await run.prints('left 6')
    await slot.destroy()
    expect((await run.ended).ending).toEqual({ kind: 'failed', reason: 'slot_lost' })
    expect(processesWith(mark)).toEqual([])
  })

  it('does not delay its result with processes that hold its output open', async () => {
    const slot = await bench.slot()
    const outcome = await slot.bash('sleep 6000 & (trap "" HUP TERM; sleep 6000) & echo done')
    expect(outcome).toMatchObject({ ending: { kind: 'exited', code: 0 }, stdout: 'done\n' })
    await slot.destroy()
  })

  it('ends also when it is stopped, or when it is cancelled before it began', async () => {
    const slot = await bench.slot({ timeoutMs: 1_000 })
    expect((await slot.bash('kill -STOP $$')).ending).toEqual({ kind: 'timed_out', limitMs: 1_000 })
    const run = slot.start({ argv: ['/usr/bin/sleep', '30'] })
    run.stop()
    expect((await run.ended).ending).toEqual({ kind: 'cancelled' })
    await sleep(10)
    expect(await slot.state()).toMatchObject({ healthy: true })
    await slot.destroy()
  })
})
