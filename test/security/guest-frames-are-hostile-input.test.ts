/** Promise 7: whatever a broken or compromised guest sends, the runner does no more than end that slot. */
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Ending } from '../../src/base/run.ts'
import { compile } from '../support/attacks.ts'
import { isAlive } from '../support/processes.ts'
import { Bench, type BenchSlot, benchMissing, type Outcome, runtimesHere } from '../support/slot-bench.ts'

const mib = 1024 * 1024
const lost: Ending = { kind: 'failed', reason: 'slot_lost' }
const noJail: Ending = { kind: 'failed', reason: 'jail_failed' }
const timedOut: Ending = { kind: 'timed_out', limitMs: 1_500 }

/** What the guest does to its run, how that run then ends, and the reported state of the slot. */
const deeds: [deed: string, ending: Ending, unhealthyReason: RegExp][] = [
  ['garbage', lost, /broke the protocol/],
  ['huge-frame', lost, /a payload of 4294967295 bytes/],
  ['large-frame', lost, /a payload of 65537 bytes/],
  ['unknown-kind', lost, /a frame of kind 99/],
  ['kind-with-more', lost, /a frame of kind 16777282/],
  ['frame-to-itself', lost, /a frame of kind 4/],
  ['other-run', lost, /a frame of run 2 during 1/],
  ['no-run', lost, /a frame of run 0 during 1/],
  ['hello-again', lost, /hello again/],
  ['short-number', lost, /3 bytes where a number belongs/],
  ['waits-as-itself', lost, /the host sees no jailed process 1/],
  ['waits-as-another', lost, /the host sees no jailed process 4000/],
  ['early-output', lost, /output before the start/],
  ['early-images', lost, /images before the start/],
  ['early-exit', noJail, /ended before its start/],
  ['endless-failure', noJail, /^no jail could be made: x{500}$/],
  ['waits-twice', lost, /waiting twice/],
  ['endless-output', { kind: 'output_limit', limitBytes: mib }, /did not end its run/],
  ['lies-about-the-end', lost, /processes outlived their jail/],
  ['impossible-code', lost, /an ending \(0, 999\)/],
  ['impossible-end', lost, /an ending \(9, 0\)/],
  ['late-failure', lost, /fails after its start/],
  ['ends-twice', { kind: 'exited', code: 0 }, /a frame of run 1|has ended|not requested/],
  ['hangs-up', lost, /closed its channel/],
  ['grows', lost, /closed its channel/],
  ['multiplies', timedOut, /did not end its run|closed its channel/],
  ['never-ends', timedOut, /did not end its run/],
  ['endless-images', { kind: 'output_limit', limitBytes: 64 * mib }, /did not end its run/],
  ['empty-images', lost, /images of nothing/],
  ['empty-output', lost, /output of nothing/],
  ['complaints', timedOut, /did not end its run/],
  ['half-frame', lost, /no jail was made in time/],
  ['silence', lost, /no jail was made in time/],
]

const beginnings: [hello: string, reason: RegExp][] = [
  ['gone', /no guest came up/],
  ['garbage', /a frame of kind 0/],
  ['huge', /a payload of 4294967280 bytes/],
  ['another', /speaks protocol 4, not 3/],
  ['late', /something else before hello/],
  ['silent', /the guest said nothing/],
]

const hostile = (hello = 'proper') => compile('hostile-guest', 'static', { HELLO: hello })

describe.skipIf(benchMissing !== undefined).each(runtimesHere)('a hostile guest in a slot of %s', (runtime) => {
  let bench: Bench
  let neighbour: BenchSlot
  const done = new Map<string, Promise<{ slot: BenchSlot; outcome: Outcome; unhealthyReason: string }>>()
  const begun = new Map<string, Promise<string>>()

  const spoil = async (deed: string, timeoutMs: number) => {
    const slot = await bench.slot({ timeoutMs, outputHardBytes: mib }, hostile())
    const outcome = await slot.run({ argv: [deed] })
    const unhealthyReason = await doubtOf(slot)
    await slot.destroy()
    return { slot, outcome, unhealthyReason }
  }
  beforeAll(async () => {
    bench = await Bench.open(runtime)
    neighbour = await bench.slot()
    // All at once: several wait for a timeout.
    for (const [deed, ending] of deeds) done.set(deed, spoil(deed, ending.kind === 'timed_out' ? 1_500 : 15_000))
    for (const [hello] of beginnings) begun.set(hello, bench.slot({}, hostile(hello)).then(String, String))
    await Promise.all([...done.values(), ...begun.values()])
  })
  afterAll(() => bench?.close())

  /** Not immediately when the run had already ended by itself. */
  const doubtOf = async (slot: BenchSlot): Promise<string> => {
    for (;;) {
      const { unhealthyReason } = await slot.state()
      if (unhealthyReason !== undefined) return unhealthyReason
      await sleep(20)
    }
  }

  const isGone = async (slot: BenchSlot) => {
    await slot.destroy()
    await expect.poll(() => isAlive(slot.guest)).toBe(false) // a process that left its cgroup is cleaned up a few steps later
  }

  /** The runner serves other runs during the attack. */
  const servesOthers = async () => {
    expect(await neighbour.bash('echo here')).toMatchObject({ ending: { kind: 'exited', code: 0 }, stdout: 'here\n' })
  }

  it.each(deeds)('that does "%s" ends only its own slot', async (deed, ending, unhealthyReason) => {
    const seen = await done.get(deed)
    // So many failing forks can use up the memory of the guest first.
    expect(deed === 'multiplies' ? [ending, lost] : [ending]).toContainEqual(seen?.outcome.ending)
    expect(seen?.unhealthyReason).toMatch(unhealthyReason)
    await expect.poll(() => seen && isAlive(seen.slot.guest)).toBe(false)
  })

  it.each(beginnings)('that begins with "%s" never becomes a slot', async (hello, reason) => {
    expect(await begun.get(hello)).toMatch(reason)
  })

  it('ends no other slot', async () => {
    await Promise.all([...done.values(), ...begun.values()])
    await servesOthers()
    expect(await neighbour.state()).toMatchObject({ healthy: true })
  })

  it.each(['complaints', 'multiplies', 'endless-output'])('that does "%s" keeps no neighbour waiting', async (deed) => {
    const slot = await bench.slot({ timeoutMs: 1_500 }, hostile())
    const run = slot.start({ argv: [deed] })
    await run.running
    for (let i = 0; i < 3; i++) await servesOthers()
    await slot.destroy()
    await run.ended
    await isGone(slot)
  })

  it('does not grow the memory of the runner', async () => {
    const flood = async (times: number) => {
      for (let i = 0; i < times; i++) {
        const slot = await bench.slot({ timeoutMs: 200 }, hostile())
        await slot.run({ argv: [i % 2 ? 'garbage' : 'endless-failure'] })
        await isGone(slot)
      }
      return bench.memory()
    }
    const before = await flood(4)
    expect((await flood(6)) - before).toBeLessThan(32 * mib)
  })
})
