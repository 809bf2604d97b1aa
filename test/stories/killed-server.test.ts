import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { follow } from '../support/calls.ts'
import { killIfThere, until, within } from '../support/glovebox.ts'
import { processesOf, slotsOf, tracesOf } from '../support/machine.ts'
import { rawRequest } from '../support/raw-http.ts'
import { atRest, endingOf, leftOf, runsAgain, slotIdsOf, withoutFiles } from '../support/recovery.ts'
import { disposablePlaces } from '../support/story.ts'

const newPlace = disposablePlaces()

const jsonTo = (port: number) => ({ host: `127.0.0.1:${port}`, 'content-type': 'application/json' })

describe('a supervisor that is killed while code runs', () => {
  it('takes both processes with it, leaves nothing behind, and a new server starts in the same home', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
    const run = await follow(server.url, 'python', 'print("on", flush=True)\nimport time\ntime.sleep(60)')
    await run.said('on')
    server.signal('SIGKILL')
    expect(await server.exited).toEqual({ code: null, signal: 'SIGKILL' })

    // A waiting client still receives the ending of its run.
    const { ending } = await within(run.result, 5_000, 'the call is answered')
    expect(ending?.kind).toMatch(/^(shutdown|failed)$/)
    const next = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
    await runsAgain(next)
    await until(() => endingOf(place, run.runId) !== null, 'the run that was under way has its ending')
    expect(endingOf(place, run.runId)).toMatchObject({ kind: expect.stringMatching(/^(shutdown|failed)$/) })
    expect(await next.stop()).toEqual({ code: 0, signal: null })
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
  })

  it('leaves nothing behind without a restart, even when a client does not read its response', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
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

describe('a host on which all three processes are killed at once', () => {
  it('loses its slots, and the next start recovers everything', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start('--no-prewarm-jails', '--slots-ready', '2')
    const run = await follow(server.url, 'bash', 'trap "" TERM HUP; (setsid sleep 100 &); echo on; sleep 100')
    await run.said('on')
    await atRest(place, 3)
    const slotIds = slotIdsOf(place)
    const pids = [server.frontPid, server.runnerPid, server.supervisorPid]
    // Stopped first, so that no process sees another one die and records it.
    for (const pid of pids) process.kill(pid, 'SIGSTOP')
    for (const pid of pids) killIfThere(pid)
    await server.exited
    await until(() => processesOf(place).length === 0, 'every process has ended, those of the run too')
    expect(tracesOf(place).mounts).toEqual(before.mounts)
    expect(leftOf(slotIds, place)).not.toEqual([])

    const next = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
    expect(leftOf(slotIds, place)).toEqual([])
    await runsAgain(next)
    await atRest(place, 2)
    await until(() => endingOf(place, run.runId) !== null, 'the run that was under way has its ending')
    expect(endingOf(place, run.runId)).toEqual({ kind: 'failed', reason: 'interrupted' })
    expect(await next.stop()).toEqual({ code: 0, signal: null })
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
  })

  it('starts again after a kill at any moment of its start', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    for (const moment of [0, 1, 2, 3, 4]) {
      const server = place.launch('--port', '0')
      await until(() => processesOf(place).length > moment, 'it has come so far')
      for (const { pid } of processesOf(place)) killIfThere(pid)
      server.signal('SIGKILL')
      await server.exited
    }
    const server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
    await runsAgain(server)
    expect(await server.stop()).toEqual({ code: 0, signal: null })
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
  }, 180_000)
})
