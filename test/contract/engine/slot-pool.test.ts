import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { RunSpec } from '../../../src/base/run.ts'
import type { Machine } from '../../../src/engine/machine.ts'
import { createSlot, SlotLeft } from '../../../src/engine/slots/create-slot.ts'
import { memoryIsShort } from '../../../src/engine/slots/memory-pressure.ts'
import { SlotPool } from '../../../src/engine/slots/pool.ts'
import type { Lease, PoolSettings } from '../../../src/engine/slots/pool-settings.ts'
import type { Slot } from '../../../src/engine/slots/slot.ts'
import { type EngineMachine, engineMachine, holdSlot, testLimits } from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'

const calm: PoolSettings = {
  slotsMax: 4,
  slotsReady: 1,
  idleMs: 60_000,
  runsPerSlot: 100,
  zygoteMaxAgeMs: 900_000,
  prewarmJails: true,
}

let runs = 0
const runOf = (keyId: string, more: Partial<RunSpec> = {}): RunSpec => ({
  runId: `trc_${++runs}`,
  orgId: 'org_test',
  keyId,
  profile: 'default',
  profileRevision: '1',
  reuse: 'key',
  language: 'bash',
  env: {},
  limits: testLimits,
  detached: false,
  ...more,
})
const thread = (id: string): Partial<RunSpec> => ({
  reuse: 'thread',
  thread: { id, fence: 1, quota: { bytes: 8 * 1024 ** 2, inodes: 64 } },
})

inPrivateMounts(import.meta.filename, () => {
  describe('the pool of slots', () => {
    let machine: EngineMachine
    let host: Machine
    let pool: SlotPool
    let failures: unknown[] = []
    let made = 0
    let short = false

    const open = async (settings: Partial<PoolSettings> = {}, make: () => Promise<Slot> = () => createSlot(host)) => {
      const counted = () => {
        made += 1
        return make()
      }
      const events = { failed: (error: unknown) => failures.push(error), changed: () => undefined }
      pool = new SlotPool(counted, { ...calm, ...settings }, events, () => short)
      await pool.open()
    }
    /** The slot that a run gets, after one real program in it. */
    const use = async (spec: RunSpec, code = ':'): Promise<string> => {
      const lease = await pool.acquire(spec)
      await runIn(lease, spec, code)
      await lease.release()
      return lease.slot.id
    }
    const trueIn = (lease: Lease, spec: RunSpec) => runIn(lease, spec, ':')
    const runIn = async ({ slot }: Lease, spec: RunSpec, code: string) => {
      const observer = { running: () => undefined, output: () => undefined, excess: () => 0, image: () => undefined }
      const { ending } = await slot.run(spec, { code: Buffer.from(code), stdin: undefined }, observer).ended
      expect(ending).toEqual({ kind: 'exited', code: 0 })
    }
    const leases = () => readdirSync(machine.settings.idLeaseDir).length
    const until = (holds: () => boolean) => expect.poll(holds, { timeout: 10_000 }).toBe(true)

    beforeAll(async () => {
      machine = engineMachine('auto')
      host = await machine.open()
    })
    afterEach(async () => {
      await pool.close()
      expect(pool.size).toEqual({ ready: 0, idle: 0, busy: 0, undying: 0, inTransit: 0 })
      expect(failures).toEqual([])
      failures = []
      made = 0
      short = false
    })
    afterAll(async () => {
      await host?.close()
      const left = machine.leftovers()
      machine.remove()
      expect(left).toEqual([])
    })

    it('gives the runs of one key the same slot, and no other key that slot', async () => {
      await open()
      const first = await use(runOf('key_a'))
      expect(await use(runOf('key_a'))).toBe(first)
      const others = [
        runOf('key_b'),
        runOf('key_a', { profileRevision: '2' }),
        runOf('key_a', { profile: 'other' }),
        runOf('key_a', thread('t')),
      ]
      const slots: string[] = [first]
      for (const other of others) slots.push(await use(other))
      expect(new Set(slots).size).toBe(slots.length)
    })

    it('gives one key two slots for two parallel runs', async () => {
      await open()
      const [one, two] = [runOf('key_a'), runOf('key_a')]
      const leases = await Promise.all([pool.acquire(one), pool.acquire(two)])
      expect(leases[0].slot).not.toBe(leases[1].slot)
      await Promise.all(leases.map((lease) => lease.release()))
    })

    it('never reuses a slot when the profile says so, and only for one thread when it says that', async () => {
      await open({ slotsReady: 0 })
      const never = () => runOf('key_a', { reuse: 'never' })
      expect(await use(never())).not.toBe(await use(never()))
      const ofThread = await use(runOf('key_a', thread('one')))
      expect(await use(runOf('key_a', thread('one')))).toBe(ofThread)
      expect(await use(runOf('key_a', thread('two')))).not.toBe(ofThread)
      const withoutThread = () => runOf('key_a', { reuse: 'thread' })
      expect(await use(withoutThread())).not.toBe(await use(withoutThread()))
    })

    it('ends a slot after its maximum of runs, after idling, and when its key is retired', async () => {
      await open({ slotsReady: 0, runsPerSlot: 2 })
      const slots = [await use(runOf('key_a')), await use(runOf('key_a')), await use(runOf('key_a'))]
      expect(slots[1]).toBe(slots[0])
      expect(slots[2]).not.toBe(slots[0])

      const busySpec = runOf('key_a')
      const busy = await pool.acquire(busySpec)
      const idle = await pool.acquire(runOf('key_a'))
      await idle.release()
      await pool.retireKey('key_a')
      expect(pool.size).toMatchObject({ idle: 0, busy: 1 })
      await trueIn(busy, busySpec)
      await busy.release()
      expect(pool.size).toMatchObject({ idle: 0, busy: 0 })
      await pool.close()

      await open({ slotsReady: 0, idleMs: 50 })
      await use(runOf('key_a'))
      await until(() => pool.size.idle + pool.size.inTransit === 0)
    })

    it('replaces a slot whose language host is old, in use or idle', async () => {
      const python = () => runOf('key_a', { language: 'python' })
      await open({ slotsReady: 0, zygoteMaxAgeMs: 300 })
      const first = await use(python(), 'pass') // Its host has just been started.
      const busy = python()
      const lease = await pool.acquire(busy)
      expect(lease.slot.id).toBe(first)
      await until(() => lease.slot.zygoteAgeMs > 300)
      await runIn(lease, busy, 'pass')
      await lease.release()
      expect(pool.size).toMatchObject({ idle: 0, busy: 0 })

      const second = await use(python(), 'pass')
      expect(second).not.toBe(first)
      await until(() => pool.size.idle + pool.size.inTransit === 0)
    })

    it('replaces a slot whose language host died: the affected run is answered, the next one gets another slot', async () => {
      const python = () => runOf('key_a', { language: 'python' })
      await open({ slotsReady: 0 })
      await use(python(), 'pass')
      const lease = await pool.acquire(python())
      await lease.release()
      await until(() => lease.slot.prewarmed === 'ready')
      const children = readFileSync(`/proc/${lease.slot.pid}/task/${lease.slot.pid}/children`, 'utf8').trim().split(' ')
      const host = children.find((pid) => readFileSync(`/proc/${pid}/comm`, 'utf8') === 'python3\n')
      process.kill(Number(host), 'SIGKILL')
      await until(() => lease.slot.degraded)
      expect(await use(python(), 'pass')).toBe(lease.slot.id)
      expect(await use(python(), 'pass')).not.toBe(lease.slot.id)
    })

    it('creates ready slots one after another, however many are wanted after a burst', async () => {
      let making = 0
      let most = 0
      await open({ slotsReady: 3, slotsMax: 6 }, async () => {
        most = Math.max(most, ++making)
        try {
          return await createSlot(host)
        } finally {
          making -= 1
        }
      })
      const leases = await Promise.all(['a', 'b', 'c'].map((key) => pool.acquire(runOf(key))))
      await until(() => pool.size.ready === 3)
      expect(most).toBe(1)
      for (const lease of leases) await lease.release()
    })

    it('prewarms a jail for the most recent language, and none when prewarming is disabled', async () => {
      await open({ slotsReady: 0 })
      await use(runOf('key_a', { language: 'node' }), '1')
      await until(() => pool.jailsWaiting === 1)
      await use(runOf('key_a', { language: 'python' }), '1')
      await until(() => pool.jailsWaiting === 1)
      await use(runOf('key_a'))
      expect([pool.jailsWaiting, pool.size.idle]).toEqual([0, 1])
      await pool.close()

      await open({ slotsReady: 0, prewarmJails: false })
      const lease = await pool.acquire(runOf('key_a', { language: 'node' }))
      await lease.release()
      expect(lease.slot.prewarmed).toBe('nothing')
    })

    it('releases everything but its ready slots when idle', async () => {
      await open({ slotsReady: 1, slotsMax: 6, idleMs: 100 })
      await Promise.all(['a', 'b', 'c'].map((key) => use(runOf(key))))
      await until(() => pool.size.idle + pool.size.busy + pool.size.inTransit === 0)
      expect(pool.size).toEqual({ ready: 1, idle: 0, busy: 0, undying: 0, inTransit: 0 })
    })

    it('ends the longest idle slot when there is no room for another', async () => {
      await open({ slotsReady: 0, slotsMax: 2 })
      const oldest = await use(runOf('key_a'))
      const newer = await use(runOf('key_b'))
      await use(runOf('key_c'))
      expect(await use(runOf('key_b'))).toBe(newer)
      expect(await use(runOf('key_a'))).not.toBe(oldest)
    })

    it('gives a run the spare slot in preparation when there is no room for another', async () => {
      await open({ slotsMax: 2 })
      const [a, b] = [runOf('key_a'), runOf('key_b')]
      const first = await pool.acquire(a)
      // The next one is being created, which fills the host.
      const second = await pool.acquire(b)
      expect(second.slot).not.toBe(first.slot)
      expect(made).toBe(2)
      await trueIn(second, b)
      await Promise.all([first.release(), second.release()])
    })

    it('never exceeds its maximum of slots, however many runs ask at once', async () => {
      const alive = new Set<Slot>()
      let making = 0
      let most = 0
      await open({ slotsMax: 3, slotsReady: 2 }, async () => {
        most = Math.max(most, ++making + alive.size)
        const slot = await createSlot(host)
        making -= 1
        alive.add(slot)
        const { destroy } = slot
        slot.destroy = () => destroy.call(slot).finally(() => alive.delete(slot))
        return slot
      })
      await Promise.all(
        Array.from({ length: 3 }, async (_, key) => {
          for (let round = 0; round < 3; round++) await use(runOf(`key_${key}_${round}`))
        }),
      )
      expect(most).toBe(3)
    })

    it('retries the creation of a slot once, and then fails the run', async () => {
      let failing = 0
      const make = async () => {
        if (failing > 0) {
          failing -= 1
          throw new Error('the runtime failed')
        }
        return createSlot(host)
      }
      await open({ slotsReady: 0 }, make)
      failing = 1
      await use(runOf('key_a'))
      expect(failures).toHaveLength(1)
      failing = 2
      await expect(pool.acquire(runOf('key_b'))).rejects.toThrow('the runtime failed')
      expect(failures).toHaveLength(3)
      failures = []
    })

    it('counts a slot that cannot be removed, with its ids and its place, and removes it when that is possible', async () => {
      await open({ slotsReady: 0, slotsMax: 1, runsPerSlot: 1 })
      const spec = runOf('key_a')
      const lease = await pool.acquire(spec)
      await trueIn(lease, spec)
      const letGo = holdSlot(machine.settings, lease.slot.id)
      let released = false
      const releasing = lease.release().then(() => {
        released = true
      })
      await until(() => failures.length === 2)
      expect(pool.size).toMatchObject({ busy: 0, idle: 0, undying: 1 })
      expect(pool.trouble).toBe('none of the 1 slots could be removed')
      expect(released).toBe(false)
      expect(leases()).toBe(1)
      await expect(pool.acquire(runOf('key_b'))).rejects.toThrow('all 1 slots are taken (1 cannot be removed)')
      letGo()
      await releasing
      expect(pool.size.undying).toBe(0)
      expect(pool.trouble).toBeUndefined()
      expect(leases()).toBe(0)
      failures = []
      await use(runOf('key_b'))
    })

    it('counts what is left of a slot that could not be created', async () => {
      let remove = (): Promise<void> => Promise.reject(new Error('still busy'))
      let attempts = 0
      const make = () =>
        Promise.reject(
          new SlotLeft(new Error('no runtime'), new Error('busy'), () => {
            attempts += 1
            return remove()
          }),
        )
      await open({ slotsReady: 0, slotsMax: 2 }, make)
      await expect(pool.acquire(runOf('key_a'))).rejects.toThrow('no runtime (and something of it is left)')
      expect(pool.size.undying).toBe(2)
      await until(() => attempts >= 4)
      remove = () => Promise.resolve()
      await until(() => pool.size.undying === 0)
      failures = []
    })

    it('replaces a waiting slot that is killed, and never hands out a dead one', async () => {
      const slots: Slot[] = []
      await open({}, async () => {
        const slot = await createSlot(host)
        slots.push(slot)
        return slot
      })
      process.kill(slots[0]!.pid, 'SIGKILL')
      await until(() => pool.size.ready === 1 && slots.length === 2)
      const id = await use(runOf('key_a'))
      expect(id).toBe(slots[1]!.id)
      process.kill(slots[1]!.pid, 'SIGKILL')
      await until(() => pool.size.idle === 0)
      expect(await use(runOf('key_a'))).not.toBe(id)
    })

    it('takes a slot from the organization with the most idle slots, not from the first one', async () => {
      await open({ slotsReady: 0, slotsMax: 3 })
      const few = await use(runOf('key_few', { orgId: 'org_few' }))
      await use(runOf('key_1', { orgId: 'org_many' }))
      const kept = await use(runOf('key_2', { orgId: 'org_many' }))
      await use(runOf('key_3', { orgId: 'org_many' }))
      expect(await use(runOf('key_few', { orgId: 'org_few' }))).toBe(few)
      expect(await use(runOf('key_2', { orgId: 'org_many' }))).toBe(kept)
    })

    it('releases idle slots, and keeps none, while the host is short of memory', async () => {
      await open({ slotsReady: 0 })
      await use(runOf('key_a'))
      await use(runOf('key_b'))
      expect(pool.size.idle).toBe(2)
      short = true
      await until(() => pool.size.idle === 0)
      await use(runOf('key_a'))
      expect(pool.size.idle).toBe(0)
    })
  })

  describe('the memory of the host', () => {
    it('is short when little is available, whatever is free', () => {
      const meminfo = (availableKb: number) =>
        `MemTotal:       1000000 kB\nMemFree:           5000 kB\nMemAvailable:   ${availableKb} kB\n`
      expect([50_000, 500_000].map((availableKb) => memoryIsShort(meminfo(availableKb)))).toEqual([true, false])
      expect(typeof memoryIsShort()).toBe('boolean')
    })
  })
})
