import { connect } from 'node:net'
import { afterAll, describe, expect, it } from 'vitest'
import { callTool, execute, follow } from '../support/calls.ts'
import { freePort, type Glovebox, killIfThere, Place, until, within } from '../support/glovebox.ts'
import { processesOf, slotsOf, type Traces, tracesOf } from '../support/machine.ts'
import { rawRequest } from '../support/raw-http.ts'

const places: Place[] = []
const newPlace = (): Place => {
  const place = new Place()
  places.push(place)
  return place
}
afterAll(async () => {
  for (const place of places) await place.remove()
})

/** Everything but files: those of the home are meant to stay. */
const withoutFiles = (traces: Traces): Traces => ({ ...traces, files: [] })

/** What is left of slots that are named, in any shape: cgroup, container, file, lease. */
function leftOf(slotIds: readonly string[], place: Place): string[] {
  const { cgroups, containers, files, processes, mounts } = tracesOf(place)
  return [...cgroups, ...containers, ...files, ...processes, ...mounts].filter((line) =>
    slotIds.some((id) => line.includes(id)),
  )
}

const slotIdsOf = (place: Place): string[] => slotsOf(place).map(({ id }) => id)

/** Waits until making and ending of slots has come to rest: what is leased is what is there. */
async function atRest(place: Place, slots: number): Promise<void> {
  await until(() => {
    const { idLeases, containers } = tracesOf(place)
    return slotIdsOf(place).length === slots && idLeases.length === slots && containers.length === slots
  }, `${slots} slots and no more`)
}

async function runsAgain(server: Glovebox): Promise<void> {
  await until(async () => (await server.readiness()) === 200, 'it is ready again', 15_000)
  expect(await execute(server.url, 'python', 'print("again")')).toMatchObject({ stdout: 'again\n', exit_code: 0 })
}

const jsonTo = (port: number) => ({ host: `127.0.0.1:${port}`, 'content-type': 'application/json' })

const endingOf = (place: Place, runId: string): unknown => {
  const ending = place.runs().find(({ id }) => id === runId)?.ending
  return typeof ending === 'string' ? JSON.parse(ending) : ending
}

describe('a runner that is killed while it runs code', () => {
  it('is back within seconds, and all it had is gone', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start()
    const run = await follow(server.url, 'python', 'print("on", flush=True)\nimport time\ntime.sleep(60)')
    const call = callTool(server.url, { code: 'sleep 60', language: 'bash' })
    await run.said('on')
    await until(() => slotsOf(place).filter(({ runPids }) => runPids.length > 0).length === 2, 'both run')
    const { runnerPid, frontPid } = server
    const slotIds = slotIdsOf(place)

    const readiness: (number | undefined)[] = []
    killIfThere(runnerPid)
    const ended = within(Promise.all([run.result, call]), 2_000, 'both calls are answered')
    await until(async () => {
      readiness.push(await server.readiness())
      return readiness.includes(503) && readiness.at(-1) === 200
    }, 'it says that it cannot run code, and then that it can')
    const [line, answer] = await ended
    expect(line).toMatchObject({ type: 'result', ending: { kind: 'failed', reason: 'runner_lost' } })
    expect(answer.status).toBe(200)
    expect(answer.body.result).toMatchObject({
      isError: true,
      structuredContent: { ending: { reason: 'runner_lost' } },
    })
    expect(new Set(readiness)).toEqual(new Set([200, 503]))

    await runsAgain(server)
    expect(server.runnerPid).not.toBe(runnerPid)
    expect(server.frontPid).toBe(frontPid)
    for (const runId of [run.runId, answer.body.result?.structuredContent.trace_id ?? '']) {
      expect(endingOf(place, runId)).toEqual({ kind: 'failed', reason: 'runner_lost' })
    }
    await atRest(place, 2)
    expect(leftOf(slotIds, place)).toEqual([])
    expect(await server.stop()).toEqual({ code: 0, signal: null })
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
  })

  it('refuses with a reason while it is away, and is restarted as often as it dies', async () => {
    const place = newPlace()
    const server = await place.start()
    for (let death = 0; death < 3; death++) {
      killIfThere(server.runnerPid)
      await until(async () => (await server.readiness()) === 503, 'its absence is noticed')
      const refused = await callTool(server.url, { code: '1' })
      expect(refused.status).toBe(503)
      expect(refused.body.error).toMatchObject({ code: -32000, data: { error: 'unavailable' } })
      expect(refused.body.error?.message).toMatch(/Runs cannot be started right now: the runner/)
      await runsAgain(server)
    }
    expect(server.log.filter(({ msg }) => msg === 'a process died; it is restarted')).toHaveLength(3)
    expect(place.runs().filter(({ finished_at }) => finished_at === null)).toEqual([])
  })
})

describe('a front that is killed while code runs', () => {
  it('is restarted, and finds the run and its ending again', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start('--port', `${await freePort()}`)
    const run = await follow(server.url, 'python', 'import time\nprint("on", flush=True)\ntime.sleep(2)\nprint("end")')
    const call = callTool(server.url, { code: 'sleep 2; exit 5', language: 'bash' }).catch(() => 'cut off' as const)
    await run.said('on')
    await until(() => slotsOf(place).filter(({ runPids }) => runPids.length > 0).length === 2, 'both run')
    const { runnerPid, frontPid } = server
    killIfThere(frontPid)
    expect(await call).toBe('cut off')
    await expect(run.result).rejects.toThrow()
    expect(place.runs().map(({ finished_at }) => finished_at)).toEqual([null, null])

    await runsAgain(server)
    expect(server.frontPid).not.toBe(frontPid)
    expect(server.runnerPid).toBe(runnerPid)
    await until(() => place.runs().every(({ finished_at }) => finished_at !== null), 'each run has its ending')
    const endings = place.runs().map(({ ending }) => JSON.parse(String(ending)) as { code: number })
    expect(endings.map(({ code }) => code).sort()).toEqual([0, 0, 5])
    expect(endingOf(place, run.runId)).toEqual({ kind: 'exited', code: 0 })
    const { result } = place.runs().find(({ id }) => id === run.runId) ?? {}
    expect(JSON.parse(String(result)).durationMs).toBeGreaterThan(1_900)

    expect(await server.stop()).toEqual({ code: 0, signal: null })
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
  })
})

describe('a supervisor that is killed while code runs', () => {
  it('takes both processes with it, leaves nothing, and its successor starts in the same home', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start()
    const run = await follow(server.url, 'python', 'print("on", flush=True)\nimport time\ntime.sleep(60)')
    await run.said('on')
    server.signal('SIGKILL')
    expect(await server.exited).toEqual({ code: null, signal: 'SIGKILL' })

    // Whoever waits for an answer is still told what became of the run.
    const { ending } = await within(run.result, 5_000, 'the call is answered')
    expect(ending?.kind).toMatch(/^(shutdown|failed)$/)
    const next = await place.start()
    await runsAgain(next)
    await until(() => endingOf(place, run.runId) !== null, 'the run that was under way has its ending')
    expect(endingOf(place, run.runId)).toMatchObject({ kind: expect.stringMatching(/^(shutdown|failed)$/) })
    expect(await next.stop()).toEqual({ code: 0, signal: null })
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
  })

  it('leaves nothing also when nobody starts it again and a client does not read its answer', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start()
    const run = await follow(server.url, 'bash', 'trap "" TERM; setsid sleep 100 & echo on; sleep 100')
    await run.said('on')
    const deaf = connect(server.port, '127.0.0.1').pause()
    const body = JSON.stringify({ code: 'print("x" * 900_000); import time; time.sleep(60)' })
    deaf.write(
      rawRequest('POST', '/v1/sandbox/execute', { ...jsonTo(server.port), accept: 'application/x-ndjson' }, body),
    )
    await until(() => slotsOf(place).filter(({ runPids }) => runPids.length > 0).length === 2, 'both run')
    server.signal('SIGKILL')
    await server.exited
    await until(() => processesOf(place).length === 0, 'every process has ended')
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
    deaf.destroy()
  })
})

describe('a machine on which all three processes are killed at once', () => {
  it('loses its slots by itself, and the next start takes everything back', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start('--slots-ready', '2')
    const run = await follow(server.url, 'bash', 'trap "" TERM HUP; (setsid sleep 100 &); echo on; sleep 100')
    await run.said('on')
    await atRest(place, 3)
    const slotIds = slotIdsOf(place)
    const pids = [server.supervisorPid, server.runnerPid, server.frontPid]
    for (const pid of pids) killIfThere(pid)
    await server.exited
    await until(() => processesOf(place).length === 0, 'every process has ended, those of the run too')
    expect(tracesOf(place).mounts).toEqual(before.mounts)
    expect(leftOf(slotIds, place)).not.toEqual([])

    const next = await place.start()
    expect(leftOf(slotIds, place)).toEqual([])
    await runsAgain(next)
    await atRest(place, 2)
    await until(() => endingOf(place, run.runId) !== null, 'the run that was under way has its ending')
    expect(endingOf(place, run.runId)).toEqual({ kind: 'failed', reason: 'interrupted' })
    expect(await next.stop()).toEqual({ code: 0, signal: null })
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
  })

  it('starts again after it was killed at any moment of its start', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    for (const moment of [0, 1, 2, 3, 4]) {
      const server = place.launch('--port', '0')
      await until(() => processesOf(place).length > moment, 'it has come so far')
      for (const { pid } of processesOf(place)) killIfThere(pid)
      server.signal('SIGKILL')
      await server.exited
    }
    const server = await place.start()
    await runsAgain(server)
    expect(await server.stop()).toEqual({ code: 0, signal: null })
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
  })
})

describe('a slot whose first process is killed from outside', () => {
  it('ends its run as lost, at once, and the next run has another slot', async () => {
    const place = newPlace()
    const server = await place.start()
    const run = await follow(server.url, 'python', 'print("on", flush=True)\nimport time\ntime.sleep(60)')
    await run.said('on')
    const slot = slotsOf(place).find(({ runPids }) => runPids.length > 0)
    killIfThere(slot?.guestPid ?? 0)
    const line = await within(run.result, 3_000, 'the run ends')
    expect(line).toMatchObject({ ending: { kind: 'failed', reason: 'slot_lost' } })
    await runsAgain(server)
    await atRest(place, 2)
    expect(leftOf([slot?.id ?? ''], place)).toEqual([])
  })

  it('is replaced while it waits for work, unbound or bound', async () => {
    const place = newPlace()
    const server = await place.start()
    await execute(server.url, 'bash', 'true')
    await atRest(place, 2)
    const slotIds = slotIdsOf(place)
    for (const { guestPid } of slotsOf(place)) killIfThere(guestPid ?? 0)
    await until(() => leftOf(slotIds, place).length === 0, 'nothing is left of either')
    await runsAgain(server)
    expect(await server.readiness()).toBe(200)
  })
})

describe('a run whose main process is killed from outside', () => {
  it('is told as a signal, and its slot goes on', async () => {
    const place = newPlace()
    const server = await place.start()
    const answer = follow(server.url, 'bash', 'echo on; sleep 60')
    const run = await answer
    await run.said('on')
    const slot = slotsOf(place).find(({ runPids }) => runPids.length > 0)
    slot?.runPids.forEach(killIfThere)
    expect(await within(run.result, 3_000, 'the run ends')).toMatchObject({
      ending: { kind: 'signaled', signal: 'KILL' },
    })
    await runsAgain(server)
    expect(slotIdsOf(place)).toContain(slot?.id)
  })
})
