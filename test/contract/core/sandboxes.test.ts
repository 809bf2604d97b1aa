import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { Refusal } from '../../../src/base/errors.ts'
import type { Caller } from '../../../src/core/caller.ts'
import { type Core, createCore } from '../../../src/core/core.ts'
import type { SandboxRequest } from '../../../src/core/sandboxes/settings.ts'
import { type SandboxChange, transitions } from '../../../src/core/sandboxes/states.ts'
import { createLog } from '../../../src/observe/log.ts'
import { Metrics } from '../../../src/observe/metrics.ts'
import { sandboxStates } from '../../../src/store/sandbox-rows.ts'
import { openStore } from '../../../src/store/sqlite.ts'
import type { Store } from '../../../src/store/store.ts'
import { coreSettings, testProfile } from '../../support/front.ts'
import { ProcessRunner } from '../../support/process-runner.ts'

/** A clock and timers that the test advances itself. */
class FakeTime {
  ms = Date.now()
  #due: { atMs: number; run: () => void }[] = []
  readonly clock = { nowMs: () => this.ms }
  readonly timers = {
    after: (delayMs: number, run: () => void) => {
      const timer = { atMs: this.ms + delayMs, run }
      this.#due.push(timer)
      return () => {
        this.#due = this.#due.filter((other) => other !== timer)
      }
    },
  }

  /** Lets time pass, and runs what is due. */
  pass(ms: number): void {
    this.ms += ms
    const due = this.#due.filter(({ atMs }) => atMs <= this.ms)
    this.#due = this.#due.filter(({ atMs }) => atMs > this.ms)
    for (const { run } of due) run()
  }
}

const directory = mkdtempSync(join(tmpdir(), 'glovebox-sandboxes-core-'))
const time = new FakeTime()
const runner = new ProcessRunner()
const log = createLog({ level: 'error', format: 'json', destination: { write: () => {} } })

let store: Store
let core: Core
let caller: Caller

const openCore = () =>
  createCore({
    ...{ store, runner, profiles: [testProfile], metrics: new Metrics(), log, ...coreSettings },
    sandboxTime: time,
  })

beforeAll(async () => {
  store = await openStore(join(directory, 'glovebox.db'))
  core = await openCore()
  caller = await core.developer()
})
afterAll(async () => {
  await core.close('shutdown', 0)
  await store.close()
  runner.close()
  rmSync(directory, { recursive: true })
})

let names = 0
let name = ''
beforeEach(() => {
  name = `sandbox${++names}`
})

const create = (request: SandboxRequest = {}) => core.sandboxes.create(caller, { name }, request)
const get = () => core.sandboxes.get(caller, { name })
const state = async () => (await get()).state
const run = (command: string) =>
  core.sandboxProcesses.run(caller, { name }, { command: 'sh', args: ['-c', command] }, new AbortController().signal)

/** Lets time pass until the state is as expected. */
const passUntil = (ms: number, expected: string) =>
  expect
    .poll(async () => {
      time.pass(ms)
      return state()
    })
    .toBe(expected)

describe('a sandbox of a profile with a network', () => {
  it('is started with this network, and one of another profile without', async () => {
    const limits = { connections: 10, bytes: 0, bytesPerSecond: 0 }
    const network = { policy: 'allow', rules: ['example.com'], limits } as const
    const networked = { ...caller, profile: { ...caller.profile, network } }
    await core.sandboxes.create(networked, { name }, {})
    await core.sandboxes.create(caller, { name: `${name}-alone` }, {})
    expect(runner.sandboxes.specs.slice(-2).map((spec) => spec.network)).toEqual([network, undefined])
  })
})

describe('the files of a stopped sandbox', () => {
  it('are opened with the network of its profile and its own variables', async () => {
    const limits = { connections: 10, bytes: 0, bytesPerSecond: 0 }
    const network = { policy: 'allow', rules: ['example.com'], limits } as const
    const profile = { ...caller.profile, network }
    await core.sandboxes.create({ ...caller, profile }, { name }, { env: { OWN: '1' } })
    await core.sandboxes.stop({ ...caller, profile }, { name })
    const changed = { ...caller, profile: { ...profile, env: { LATER: '1' } } }
    await core.sandboxFiles.list(changed, { name }, { path: '.' })
    expect(runner.sandboxes.filesSpecs.at(-1)).toEqual(runner.sandboxes.specs.at(-1))
  })
})

describe('the table of states', () => {
  it('leads to existing states, and each state but the last can be removed', () => {
    for (const from of sandboxStates) {
      for (const to of Object.values(transitions[from])) expect(sandboxStates).toContain(to)
      expect(transitions[from].remove).toBe(from === 'removing' ? undefined : 'removing')
    }
  })

  it('has every change that a caller, the runner or a crash makes', () => {
    const changes = new Set(Object.values(transitions).flatMap((of) => Object.keys(of)))
    const expected: SandboxChange[] = [
      'start',
      'started',
      'failed',
      'pause',
      'resume',
      'stop',
      'stopped',
      'crash',
      'remove',
    ]
    expect([...changes].sort()).toEqual([...expected].sort())
  })
})

describe('a sandbox that is idle', () => {
  it('stops after its idle timeout, and keeps its disk', async () => {
    await create({ idleTimeoutMs: 60_000 })
    await run('echo kept > file')
    time.pass(50_000)
    expect(await state()).toBe('running')
    await passUntil(11_000, 'stopped')
    expect(await get()).toMatchObject({ reason: 'idle' })
    await core.sandboxes.start(caller, { name })
    expect((await run('cat file')).stdout).toBe('kept\n')
  })

  it('is not idle while a call is in progress, and not after one', async () => {
    await create({ idleTimeoutMs: 60_000 })
    const { processId } = await core.sandboxProcesses.start(caller, { name }, { command: 'cat', stdin: true })
    const events = await core.sandboxProcesses.follow(caller, { name }, processId, 0, new AbortController().signal)
    const first = events.next()
    for (let n = 0; n < 5; n++) time.pass(40_000)
    expect(await state()).toBe('running')
    await core.sandboxProcesses.signal(caller, { name }, processId, 'KILL')
    for (let next = await first; !next.done; next = await events.next());
    time.pass(50_000)
    expect(await state()).toBe('running')
    await passUntil(61_000, 'stopped')
  })

  it.each([
    ['pause', 'paused'],
    ['stop', 'stopped'],
  ] as const)('is ended as on_end says: %s', async (onEnd, expected) => {
    await create({ idleTimeoutMs: 1_000, onEnd })
    await passUntil(5_000, expected)
  })

  it('is deleted with on_end delete', async () => {
    await create({ idleTimeoutMs: 1_000, onEnd: 'delete' })
    await expect
      .poll(async () => {
        time.pass(5_000)
        return get().then(
          () => 'there',
          (error: Refusal) => error.code,
        )
      })
      .toBe('sandbox_unknown')
  })
})

describe('the lifetime of a sandbox', () => {
  it('ends it although it is used, unless it is extended', async () => {
    await create({ lifetimeMs: 100_000 })
    time.pass(90_000)
    await core.sandboxes.extend(caller, { name }, { lifetimeMs: 100_000 })
    time.pass(90_000)
    await run('true')
    expect(await state()).toBe('running')
    await passUntil(11_000, 'stopped')
    expect(await get()).toMatchObject({ reason: 'lifetime' })
  })

  it('cannot exceed that of the profile', async () => {
    const limited = {
      ...caller,
      profile: { ...caller.profile, sandboxes: { ...caller.profile.sandboxes, lifetimeMaxMs: 5_000 } },
    }
    for (const lifetimeMs of [0, 6_000]) {
      await expect(core.sandboxes.create(limited, { name }, { lifetimeMs })).rejects.toThrow('lifetime is too long')
    }
    const { expires_at } = await core.sandboxes.create(limited, { name }, {})
    expect(Date.parse(expires_at ?? '')).toBe(time.ms + 5_000)
  })
})

describe('a sandbox that crashes', () => {
  it('stays crashed with its reason, and starts again with its disk when it is asked to', async () => {
    const { id } = await create()
    await run('echo kept > file')
    runner.sandboxes.crash(id, 'out_of_memory')
    await expect.poll(get).toMatchObject({ state: 'crashed', reason: 'out_of_memory' })
    await expect(run('true')).rejects.toThrow('is crashed')
    expect(await core.sandboxes.start(caller, { name })).toMatchObject({ state: 'running', reason: null })
    expect((await run('cat file')).stdout).toBe('kept\n')
  })

  it('starts again by itself with on_crash restart, a limited number of times', async () => {
    const { id } = await create({ onCrash: 'restart' })
    for (let restarts = 1; restarts <= 5; restarts++) {
      runner.sandboxes.crash(id, 'slot_lost')
      await expect.poll(state).toBe('crashed')
      await passUntil(60_000, 'running')
      expect(await get()).toMatchObject({ restarts })
    }
    runner.sandboxes.crash(id, 'slot_lost')
    await expect.poll(state).toBe('crashed')
    for (let n = 0; n < 5; n++) time.pass(3_600_000)
    expect(await state()).toBe('crashed')
  })
})

describe('after a restart', () => {
  it('of the runner, sandboxes are crashed with a reason, and by policy started again with their disk', async () => {
    await create()
    const stays = name
    name = `sandbox${++names}`
    await create({ onCrash: 'restart' })
    await run('echo kept > file')
    runner.sandboxes.lose()
    await expect
      .poll(async () => {
        time.pass(1_000)
        return (await core.sandboxes.get(caller, { name: stays })).state
      })
      .toBe('crashed')
    expect(await core.sandboxes.get(caller, { name: stays })).toMatchObject({ reason: 'runner_lost' })
    await passUntil(60_000, 'running')
    expect((await run('cat file')).stdout).toBe('kept\n')
  })

  it('of the front, sandboxes run on, and what the front missed is found', async () => {
    const { id } = await create()
    const goesOn = name
    name = `sandbox${++names}`
    const { id: crashedId } = await create()
    const crashes = name
    await core.close('leave', 0)
    runner.sandboxes.crash(crashedId, 'slot_lost')
    // Started by a front that ended before it could write that it runs.
    await store.sandboxes.update(id, { state: 'starting' })
    core = await openCore()
    await expect.poll(async () => (await core.sandboxes.get(caller, { name: goesOn })).state).toBe('running')
    await expect
      .poll(() => core.sandboxes.get(caller, { name: crashes }))
      .toMatchObject({ state: 'crashed', reason: 'runner_lost' })
    name = goesOn
    expect((await run('echo on')).stdout).toBe('on\n')
  })

  it.each([
    ['still runs', () => {}],
    ['has ended', () => runner.sandboxes.lose()],
  ])(
    'of the front, a stop that it had begun is completed with its reason: the sandbox %s',
    async (_what, meanwhile) => {
      const { id } = await create({ idleTimeoutMs: 60_000 })
      runner.sandboxes.stopRefusal = new Refusal('unavailable', { reason: 'the connection is lost' })
      await passUntil(61_000, 'stopping')
      await core.close('leave', 0)
      runner.sandboxes.stopRefusal = undefined
      meanwhile()
      core = await openCore()
      await expect.poll(get).toMatchObject({ state: 'stopped', reason: 'idle' })
      expect(await runner.sandboxes.list()).not.toContainEqual(expect.objectContaining({ sandboxId: id }))
      await core.sandboxes.start(caller, { name })
      expect(await get()).toMatchObject({ state: 'running', reason: null })
    },
  )

  it('a removal that was not completed is completed', async () => {
    const { id } = await create()
    await store.sandboxes.move(id, ['running'], 'removing')
    await expect(get()).rejects.toThrow('does not exist')
    await core.close('leave', 0)
    core = await openCore()
    await expect.poll(() => store.sandboxes.byId(id)).toBeUndefined()
    expect(await runner.sandboxes.list()).not.toContainEqual(expect.objectContaining({ sandboxId: id }))
  })
})

describe('concurrent calls', () => {
  it('start a sandbox once', async () => {
    const views = await Promise.all([1, 2, 3, 4].map(() => core.sandboxes.ensure(caller, { name }, {})))
    expect(new Set(views.map(({ id }) => id)).size).toBe(1)
    expect(views.every(({ state }) => state === 'running')).toBe(true)
  })

  it('take turns when they change the state', async () => {
    await create()
    const { sandboxes } = core
    const changes = () => [sandboxes.stop(caller, { name }), sandboxes.start(caller, { name })]
    await Promise.all([...changes(), ...changes(), ...changes()])
    // Which of them is last is not defined: each looks for the sandbox first.
    const { id, state: last } = await get()
    const isRunning = (await runner.sandboxes.list()).some(({ sandboxId }) => sandboxId === id)
    expect(last).toBe(isRunning ? 'running' : 'stopped')
  })

  it('find nothing of a sandbox that another call removes', async () => {
    await create()
    const settled = await Promise.allSettled([
      core.sandboxes.remove(caller, { name }),
      core.sandboxes.remove(caller, { name }),
      core.sandboxes.stop(caller, { name }),
    ])
    for (const result of settled.slice(1)) {
      if (result.status === 'rejected') expect((result.reason as Refusal).code).toBe('sandbox_unknown')
    }
    await expect(get()).rejects.toBeInstanceOf(Refusal)
  })
})

describe('the usage of a key', () => {
  it('contains the time for which its sandboxes ran', async () => {
    const usedMs = async () =>
      (await store.usage.list(caller.orgId, '2000', '3000')).reduce((sum, { sandboxMs }) => sum + sandboxMs, 0)
    await create()
    time.pass(2_000)
    const before = await usedMs()
    await expect
      .poll(async () => {
        time.pass(2_000)
        return usedMs()
      })
      .toBeGreaterThan(before)
  })
})
