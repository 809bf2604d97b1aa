import { describe, expect, it } from 'vitest'
import { callTool, execute, type Following, follow, post } from '../support/calls.ts'
import { builtProgram, freePort, type Glovebox, killIfThere, type Place, until, within } from '../support/glovebox.ts'
import { slotsOf, tracesOf } from '../support/machine.ts'
import { atRest, endingOf, leftOf, runsAgain, slotIdsOf, withoutFiles } from '../support/recovery.ts'
import { disposablePlaces } from '../support/story.ts'

const newPlace = disposablePlaces(builtProgram)

describe('a runner that is killed while it executes code', () => {
  it('restarts within seconds, and everything it owned is removed', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
    const run = await follow(server.url, 'python', 'print("on", flush=True)\nimport time\ntime.sleep(60)')
    const call = callTool(server.url, { code: 'sleep 60', language: 'bash' })
    await run.said('on')
    await until(() => slotsOf(place).filter(({ runPids }) => runPids.length > 0).length === 2, 'both run')
    const { runnerPid, frontPid } = server
    const slotIds = slotIdsOf(place)

    const readiness: (number | undefined)[] = []
    killIfThere(runnerPid)
    const ended = Promise.all([run.result, call]).then((answers) => {
      readiness.push(0)
      return answers
    })
    await until(async () => {
      readiness.push(await server.readiness())
      return readiness.includes(503) && readiness.at(-1) === 200
    }, 'it says that it cannot run code, and then that it can')
    const [line, answer] = await ended
    // Both calls were answered before the next runner was ready.
    expect(readiness.indexOf(0)).toBeLessThan(readiness.lastIndexOf(200))
    expect(line).toMatchObject({ type: 'result', ending: { kind: 'failed', reason: 'runner_lost' } })
    expect(answer.status).toBe(200)
    expect(answer.body.result).toMatchObject({
      isError: true,
      structuredContent: { ending: { reason: 'runner_lost' } },
    })
    expect(new Set(readiness)).toEqual(new Set([0, 200, 503]))

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

  it('is restarted every time it dies, and calls meanwhile are rejected with a reason', async () => {
    const place = newPlace()
    const server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
    for (let death = 0; death < 3; death++) {
      killIfThere(server.runnerPid)
      await until(async () => (await server.readiness()) === 503, 'its absence is noticed')
      const refused = await callTool(server.url, { code: '1' })
      expect(refused.status).toBe(503)
      expect(refused.body.error).toMatchObject({ code: -32000, data: { error: 'unavailable' } })
      expect(refused.body.error?.message).toMatch(/The service is temporarily unavailable: the runner/)
      await runsAgain(server)
    }
    expect(server.log.filter(({ msg }) => msg === 'process died; restarting it')).toHaveLength(3)
    expect(place.runs().filter(({ finished_at }) => finished_at === null)).toEqual([])
  })
})

describe('waiting runs', () => {
  const start = async (): Promise<[Place, Glovebox, Following]> => {
    const place = newPlace()
    const server = await place.start('--no-prewarm-jails', '--port', `${await freePort()}`, '--runs-max', '1')
    const run = await follow(server.url, 'bash', 'echo on; sleep 3')
    await run.said('on')
    return [place, server, run]
  }

  it('are rejected when the runner dies, and their rows say so', async () => {
    const [place, server] = await start()
    const waiting = post(`${server.url}/v1/sandbox/execute`, { code: 'print(1)' })
    await until(() => place.runs().length === 2, 'it waits')
    killIfThere(server.runnerPid)
    expect(await waiting).toMatchObject({ status: 503, body: { error: 'unavailable' } })
    await runsAgain(server)
    await until(() => place.runs().every(({ finished_at }) => finished_at !== null), 'each run has its ending')
    const reasons = place.runs().map(({ ending }) => (JSON.parse(String(ending)) as { reason?: string }).reason)
    expect(reasons.slice(0, 2)).toEqual(['runner_lost', 'not_started'])
  })

  it('execute and end normally when the front dies', async () => {
    const [place, server] = await start()
    const waiting = execute(server.url, 'bash', 'exit 5').catch(() => 'cut off' as const)
    await until(() => place.runs().length === 2, 'it waits')
    killIfThere(server.frontPid)
    expect(await waiting).toBe('cut off')
    await until(async () => (await server.readiness()) === 200, 'it is ready again', 15_000)
    await until(() => place.runs().every(({ finished_at }) => finished_at !== null), 'each run has its ending')
    expect(place.runs().map(({ ending }) => ending)).toEqual([
      '{"kind":"exited","code":0}',
      '{"kind":"exited","code":5}',
    ])
  })
})

describe('a front that is killed while code runs', () => {
  it('is restarted, and finds the run and its ending', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start('--no-prewarm-jails', '--port', `${await freePort()}`)
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

describe('a slot whose first process is killed from outside', () => {
  it('ends its run as lost immediately, and the next run gets another slot', async () => {
    const place = newPlace()
    const server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
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

  it('is replaced when it was idle, bound or not', async () => {
    const place = newPlace()
    const server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
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
  it('is reported as signaled, and its slot stays usable', async () => {
    const place = newPlace()
    const server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
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
