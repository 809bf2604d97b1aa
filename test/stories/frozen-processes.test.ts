import { describe, expect, it } from 'vitest'
import { callTool, execute, follow, post } from '../support/calls.ts'
import { freePort, until } from '../support/glovebox.ts'
import { slotsOf, tracesOf } from '../support/machine.ts'
import { atRest, endingOf, leftOf, runsAgain, slotIdsOf, withoutFiles } from '../support/recovery.ts'
import { disposablePlaces } from '../support/story.ts'

const newPlace = disposablePlaces()
const freeze = (pid: number) => process.kill(pid, 'SIGSTOP')

describe('a runner that does not respond', () => {
  it('is reported by the readiness probe, and replaced; its runs end as failed and nothing of them is left', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await place.start('--no-prewarm-jails', '--watchdog-s', '8')
    const run = await follow(server.url, 'python', 'print("on", flush=True)\nimport time\ntime.sleep(600)')
    await run.said('on')
    await until(() => slotsOf(place).some(({ runPids }) => runPids.length > 0), 'it runs')
    const { runnerPid, frontPid } = server
    const slotIds = slotIdsOf(place)

    freeze(runnerPid)
    const waiting = post(`${server.url}/v1/sandbox/execute`, { code: 'print(1)', language: 'python' })
    await until(async () => (await server.readiness()) === 503, 'it is noticed')
    const probe = await fetch(`${server.url}/readyz`)
    expect(await probe.json()).toEqual({ status: 'not_ready', reason: 'the runner does not respond' })
    // Frozen, not dead yet: what comes now is refused at once.
    const refused = await callTool(server.url, { code: '1' })
    expect(refused.status).toBe(503)
    expect(refused.body.error?.message).toMatch(/the runner does not respond/)
    expect((await fetch(`${server.url}/metrics`)).status).toBe(200)

    expect(await run.result).toMatchObject({ type: 'result', ending: { kind: 'failed', reason: 'runner_lost' } })
    expect((await waiting).status).toBe(503)
    await runsAgain(server)
    expect(server.runnerPid).not.toBe(runnerPid)
    expect(server.frontPid).toBe(frontPid)
    expect(endingOf(place, run.runId)).toEqual({ kind: 'failed', reason: 'runner_lost' })
    expect(server.log.filter(({ msg }) => msg?.startsWith('process'))).toMatchObject([
      { level: 'warn', child: 'runner', pid: runnerPid, silent_s: 5, msg: 'process does not respond' },
      { level: 'error', child: 'runner', pid: runnerPid, silent_s: 8, msg: 'process does not respond; killing it' },
      { level: 'error', child: 'runner', msg: 'process died; restarting it' },
    ])
    await atRest(place, 2)
    expect(leftOf(slotIds, place)).toEqual([])
    expect(await server.stop()).toEqual({ code: 0, signal: null })
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
  })

  it('keeps its runs when it responds again in time', async () => {
    const server = await newPlace().start('--no-prewarm-jails')
    const run = await follow(server.url, 'bash', 'echo on; sleep 8; echo end')
    await run.said('on')
    const { runnerPid } = server
    freeze(runnerPid)
    await until(async () => (await server.readiness()) === 503, 'it is noticed')
    process.kill(runnerPid, 'SIGCONT')
    await until(async () => (await server.readiness()) === 200, 'it is ready again')
    expect(await run.result).toMatchObject({ type: 'result', ending: { kind: 'exited', code: 0 } })
    expect(server.runnerPid).toBe(runnerPid)
  })
})

describe('an API server process that does not respond', () => {
  it('is replaced, and the next one takes its runs over', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const words = ['--port', `${await freePort()}`, '--watchdog-s', '5', '--front-grace-s', '30']
    const server = await place.start('--no-prewarm-jails', ...words)
    const run = await follow(server.url, 'bash', 'echo on; sleep 8; exit 5')
    await run.said('on')
    const { runnerPid, frontPid } = server
    freeze(frontPid)
    await expect(run.result).rejects.toThrow()
    await until(async () => (await server.readiness()) === 200, 'it is ready again')
    expect(server.frontPid).not.toBe(frontPid)
    expect(server.runnerPid).toBe(runnerPid)
    await until(() => place.runs().every(({ finished_at }) => finished_at !== null), 'the run has its ending')
    expect(endingOf(place, run.runId)).toEqual({ kind: 'exited', code: 5 })
    expect(await execute(server.url, 'bash', 'exit 3')).toMatchObject({ exit_code: 3 })
    expect(await server.stop()).toEqual({ code: 0, signal: null })
    expect(withoutFiles(tracesOf(place))).toEqual(withoutFiles(before))
  })
})
