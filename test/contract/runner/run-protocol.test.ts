import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { pino } from 'pino'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { newId } from '../../../src/base/ids.ts'
import type { RunEvent, RunInput, RunSpec } from '../../../src/base/run.ts'
import type { Machine } from '../../../src/engine/machine.ts'
import { createSlot } from '../../../src/engine/slots/create-slot.ts'
import { SlotPool } from '../../../src/engine/slots/pool.ts'
import { FairQueue } from '../../../src/engine/slots/queue.ts'
import { RunnerClient } from '../../../src/runner/client/client.ts'
import { protocolVersion, type RunSummary } from '../../../src/runner/protocol/messages.ts'
import { encodeMessage, MessageReader } from '../../../src/runner/protocol/wire.ts'
import { Runs } from '../../../src/runner/runs/runs.ts'
import { Sandboxes } from '../../../src/runner/sandboxes/sandboxes.ts'
import { RunnerServer } from '../../../src/runner/server.ts'
import { type EngineMachine, engineMachine, testLimits } from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'

/** Not used by anyone on a usual host. */
const strangerUid = 64_999
const frontUid = 64_998
const graceMs = 300

inPrivateMounts(import.meta.filename, () => {
  describe('the protocol between front and runner', () => {
    const dir = mkdtempSync(join(tmpdir(), 'glovebox-link-'))
    const socketPath = join(dir, 'link', 'runner.sock')
    const clients = new Set<RunnerClient>()
    let machine: EngineMachine
    let host: Machine
    let pool: SlotPool
    let runs: Runs
    let server: RunnerServer

    beforeAll(async () => {
      chmodSync(dir, 0o711)
      machine = engineMachine('auto')
      host = await machine.open()
      const events = { failed: (error: unknown) => expect.unreachable(String(error)), changed: () => undefined }
      const settings = {
        slotsMax: 3,
        slotsReady: 1,
        idleMs: 60_000,
        runsPerSlot: 100,
        zygoteMaxAgeMs: 900_000,
        prewarmJails: true,
      }
      pool = new SlotPool(() => createSlot(host), settings, events)
      await pool.open()
      const queue = new FairQueue({ places: 2, placesPerOrg: 2, waitingPerOrg: 1, waitMs: 30_000 })
      runs = new Runs(
        queue,
        pool,
        undefined,
        () => ['python', 'bash'],
        (error) => expect.unreachable(String(error)),
      )
      server = new RunnerServer(
        { socketPath, frontUid, frontGid: frontUid, graceMs, runnerId: 'test', epoch: 7 },
        { runs, sandboxes: new Sandboxes({ max: 0 }, undefined, pino({ level: 'silent' })) },
        pino({ level: 'silent' }),
      )
      await server.listen()
    })
    afterEach(async () => {
      for (const client of clients) client.close()
      clients.clear()
      for (const { runId, state } of runs.list()) if (state !== 'ended') runs.cancel(runId, 'cancelled')
      await until(() => runs.list().every(({ state }) => state === 'ended'))
      for (const { runId } of runs.list()) runs.acknowledge(runId)
    })
    afterAll(async () => {
      await server?.close()
      await pool?.close()
      await host?.close()
      const left = machine.leftovers()
      machine.remove()
      rmSync(dir, { recursive: true, force: true })
      expect(left).toEqual([])
    })

    async function front(): Promise<RunnerClient> {
      const client = new RunnerClient(socketPath, (problem) => expect.unreachable(problem))
      clients.add(client)
      await until(() => client.readiness.ready)
      return client
    }

    async function known(client: RunnerClient, runId: string): Promise<RunSummary | undefined> {
      return (await client.list()).find((run) => run.runId === runId)
    }

    it('starts a run once, however often it is requested', async () => {
      const client = await front()
      const spec = specOf()
      await Promise.all([client.start(spec, bash('echo once')), client.start(spec, bash('echo twice'))])
      await client.start(spec, bash('echo thrice'))
      expect(textOf(await all(client.attach(spec.runId, 0)))).toBe('once\n')
    })

    it('reports the number of runs and slots', async () => {
      const client = await front()
      const spec = specOf()
      await client.start(spec, bash('sleep 30'))
      for await (const event of client.attach(spec.runId, 0)) if (event.kind === 'running') break
      const { running, waiting, slots, process: own } = await client.stats()
      expect([running, waiting, slots.busy]).toEqual([1, 0, 1])
      expect(own.residentBytes).toBeGreaterThan(0)
      await client.cancel(spec.runId, 'cancelled')
      await all(client.attach(spec.runId, 0))
      expect((await client.stats()).slots.busy).toBe(0)
    })

    it('replays from any sequence number and keeps the ending until it is acknowledged', async () => {
      const client = await front()
      const spec = specOf()
      await client.start(spec, bash('printf 0123456789'))
      const events = await all(client.attach(spec.runId, 0))
      expect(events.map(({ kind }) => kind)).toEqual(['running', 'output', 'ended'])
      const [running] = events
      expect(textOf(await all(client.attach(spec.runId, running!.seq + 4)))).toBe('456789')
      await client.acknowledge(spec.runId)
      expect(await known(client, spec.runId)).toBeUndefined()
      await expect(all(client.attach(spec.runId, 0))).rejects.toMatchObject({ code: 'run_unknown' })
    })

    it('lets a second front follow a run that the first one started', async () => {
      const [first, second] = [await front(), await front()]
      const spec = specOf({ detached: true })
      await first.start(spec, bash('echo early; sleep 1; echo late'))
      first.close()
      expect(textOf(await all(second.attach(spec.runId, 0)))).toBe('early\nlate\n')
    })

    it('ends runs without a reader after the grace period, except detached ones', async () => {
      const [first, second] = [await front(), await front()]
      const [waited, detached] = [specOf(), specOf({ detached: true })]
      await first.start(waited, bash('sleep 30'))
      await first.start(detached, bash('sleep 1; echo done'))
      first.close()
      await until(async () => (await known(second, waited.runId))?.state === 'ended')
      expect((await all(second.attach(waited.runId, 0))).at(-1)).toMatchObject({
        result: { ending: { kind: 'cancelled' } },
      })
      expect(textOf(await all(second.attach(detached.runId, 0)))).toBe('done\n')
    })

    it('lets a run continue that was detached after its start', async () => {
      const [first, second] = [await front(), await front()]
      const spec = specOf()
      await first.start(spec, bash('sleep 1; echo done'))
      await first.outlive(spec.runId)
      first.close()
      await sleep(graceMs * 2)
      expect(textOf(await all(second.attach(spec.runId, 0)))).toBe('done\n')
      await expect(second.outlive('trc_never')).rejects.toMatchObject({ code: 'run_unknown' })
    })

    it('keeps a run that another front took over within the grace period', async () => {
      const [first, second] = [await front(), await front()]
      const spec = specOf()
      await first.start(spec, bash('sleep 1; echo done'))
      first.close()
      expect(textOf(await all(second.attach(spec.runId, 0)))).toBe('done\n')
    })

    it('cancels a run in every state, and says so when there is nothing to cancel', async () => {
      const client = await front()
      const [a, b, queued] = [specOf(), specOf(), specOf()]
      await client.start(a, bash('sleep 30'))
      await client.start(b, bash('sleep 30'))
      const waiting = client.start(queued, bash('echo never'))
      await client.cancel(queued.runId, 'cancelled')
      await expect(waiting).rejects.toMatchObject({ code: 'run_finished' })
      await client.cancel(a.runId, 'cancelled')
      expect((await all(client.attach(a.runId, 0))).at(-1)).toMatchObject({ result: { ending: { kind: 'cancelled' } } })
      await expect(client.cancel(a.runId, 'cancelled')).rejects.toMatchObject({ code: 'run_finished' })
      await expect(client.cancel('trc_none', 'cancelled')).rejects.toMatchObject({ code: 'run_unknown' })
    })

    it('rejects immediately when the queue is full', async () => {
      const client = await front()
      await client.start(specOf(), bash('sleep 30'))
      await client.start(specOf(), bash('sleep 30'))
      const waiting = client.start(specOf(), bash('echo'))
      waiting.catch(() => undefined)
      await expect(client.start(specOf(), bash('echo'))).rejects.toMatchObject({ code: 'queue_full' })
    })

    it('rejects a language that the image does not have', async () => {
      const client = await front()
      await expect(client.start(specOf({ language: 'node' }), bash(''))).rejects.toMatchObject({
        code: 'language_unavailable',
      })
    })

    it('ends the runs and slots of a retired key', async () => {
      const client = await front()
      const [mine, other] = [specOf({ keyId: 'key_gone' }), specOf()]
      await client.start(mine, bash('sleep 30'))
      await client.start(other, bash('sleep 1'))
      await client.retireKey('key_gone')
      expect((await all(client.attach(mine.runId, 0))).at(-1)).toMatchObject({
        result: { ending: { kind: 'cancelled' } },
      })
      expect((await all(client.attach(other.runId, 0))).at(-1)).toMatchObject({
        result: { ending: { kind: 'exited', code: 0 } },
      })
    })

    it('buffers little for a slow reader, and loses nothing of its output', async () => {
      const client = await front()
      const spec = specOf({ outputSoftBytes: 4 * 1024 ** 2 })
      await client.start(spec, bash('head -c 2000000 /dev/zero | tr "\\\\0" x'))
      const events = client.attach(spec.runId, 0)
      await events.next()
      await until(async () => (await known(client, spec.runId))?.state === 'ended')
      const rest: RunEvent[] = []
      for await (const event of events) rest.push(event)
      expect(textOf(rest).length).toBe(2_000_000)
    })

    it('serves many readers of one run', async () => {
      const client = await front()
      const spec = specOf()
      await client.start(spec, bash('for i in 1 2 3 4 5; do echo $i; sleep 0.05; done'))
      const read = await Promise.all([1, 2, 3].map(() => all(client.attach(spec.runId, 0))))
      for (const events of read) expect(textOf(events)).toBe('1\n2\n3\n4\n5\n')
    })

    it('disconnects a front that breaks the protocol and keeps serving the others', async () => {
      const client = await front()
      for (const bytes of [
        Buffer.from('GET / HTTP/1.1\r\n\r\n'),
        Buffer.alloc(64, 0xff),
        encodeMessage({ type: 'list', request: 1 }),
        encodeMessage({ type: 'hello', version: protocolVersion + 1 }),
        Buffer.concat([
          encodeMessage({ type: 'hello', version: protocolVersion }),
          encodeMessage({ type: 'nonsense' }),
        ]),
        Buffer.concat([
          encodeMessage({ type: 'hello', version: protocolVersion }),
          encodeMessage({ type: 'start', request: 1, spec: specOf(), windowBytes: 1, codeBytes: 9 }),
        ]),
      ]) {
        const socket = connect(socketPath)
        socket.write(bytes)
        await closed(socket)
      }
      const spec = specOf()
      await client.start(spec, bash('echo still here'))
      expect(textOf(await all(client.attach(spec.runId, 0)))).toBe('still here\n')
    })

    it('refuses a request whose values are out of bounds, and keeps the connection', async () => {
      const socket = connect(socketPath)
      const reader = new MessageReader()
      const received: unknown[] = []
      socket.on('data', (chunk) => received.push(...reader.push(chunk).map(({ header }) => header)))
      socket.write(encodeMessage({ type: 'hello', version: protocolVersion }))
      socket.write(encodeMessage({ type: 'acknowledge', request: 1, runId: 'x'.repeat(1_000) }))
      socket.write(encodeMessage({ type: 'list', request: 2 }))
      await expect.poll(() => received).toContainEqual(expect.objectContaining({ type: 'runs', request: 2 }))
      expect(received).toContainEqual(
        expect.objectContaining({ type: 'refused', request: 1, code: 'invalid_argument' }),
      )
      socket.destroy()
    })

    it('states its version and its epoch first', async () => {
      const socket = connect(socketPath)
      socket.write(encodeMessage({ type: 'hello', version: protocolVersion }))
      const [chunk] = (await once(socket, 'data')) as [Buffer]
      socket.destroy()
      expect(new MessageReader().push(chunk)[0]?.header).toEqual({
        type: 'hello',
        version: protocolVersion,
        runnerId: 'test',
        epoch: 7,
      })
    })

    it('of another version is reported once, however often it is met, and served when it is replaced', async () => {
      const path = join(dir, 'other.sock')
      let version = protocolVersion + 1
      let met = 0
      const listener = createServer((socket) => {
        met += 1
        socket.on('error', () => {})
        socket.resume().write(encodeMessage({ type: 'hello', version, runnerId: 'other', epoch: 1 }))
        if (version === protocolVersion) socket.write(encodeMessage({ type: 'ready', ready: true, reason: '' }))
      })
      await new Promise<void>((resolve) => listener.listen(path, resolve))
      const troubles: string[] = []
      const client = new RunnerClient(path, (problem) => troubles.push(problem))
      await expect.poll(() => met, { timeout: 10_000 }).toBeGreaterThan(4)
      expect(troubles).toEqual([expect.stringContaining(`version ${protocolVersion + 1}`)])
      version = protocolVersion
      await expect.poll(() => client.readiness.ready, { timeout: 10_000 }).toBe(true)
      expect(troubles).toHaveLength(1)
      await client.close()
      listener.close()
    })

    it('accepts connections from no other user', async () => {
      const attempt = (uid: number, gid: number) => {
        const code = `const s = require('net').connect(${JSON.stringify(socketPath)})
          s.on('error', (e) => console.log(e.code)).on('close', () => console.log('closed'))
          s.on('data', () => { console.log('served'); s.destroy() })
          const hello = Buffer.from(${JSON.stringify(encodeMessage({ type: 'hello', version: protocolVersion }).toString('hex'))}, 'hex')
          s.on('connect', () => s.write(hello))`
        const words = [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', '--', process.execPath, '-e', code]
        return promisify(execFile)('setpriv', words).then(({ stdout }) => stdout.trim().split('\n')[0])
      }
      expect(await attempt(frontUid, frontUid)).toBe('served')
      expect(await attempt(strangerUid, strangerUid)).toBe('EACCES')
      // Not even from one with group access to the socket.
      expect(await attempt(strangerUid, frontUid)).toMatch(/^(closed|EPIPE|ECONNRESET)$/)
    })
  })
})

function specOf(
  changed: Partial<Pick<RunSpec, 'detached' | 'keyId' | 'language'>> & { outputSoftBytes?: number } = {},
): RunSpec {
  const { outputSoftBytes = testLimits.outputSoftBytes, ...rest } = changed
  return {
    runId: newId('run'),
    orgId: 'org_a',
    keyId: 'key_a',
    profile: 'default',
    profileRevision: 'r1',
    reuse: 'key',
    language: 'bash',
    env: {},
    limits: { ...testLimits, outputSoftBytes, outputHardBytes: 8 * 1024 ** 2 },
    detached: false,
    ...rest,
  }
}

const bash = (code: string): RunInput => ({ code: Buffer.from(code), stdin: undefined })

async function all(events: AsyncIterable<RunEvent>): Promise<RunEvent[]> {
  const read: RunEvent[] = []
  for await (const event of events) read.push(event)
  return read
}

const textOf = (events: readonly RunEvent[]): string =>
  events.map((event) => (event.kind === 'output' ? Buffer.from(event.bytes).toString() : '')).join('')

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await sleep(10)
}

const closed = (socket: Socket) =>
  new Promise((resolve) => {
    socket.on('error', () => undefined)
    socket.on('close', resolve)
    socket.resume()
  })
