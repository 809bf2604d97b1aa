import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { callTool, execute, follow } from '../support/calls.ts'
import { type Place, signalIfThere, until, within } from '../support/glovebox.ts'
import { slotsOf, tracesOf } from '../support/machine.ts'
import { rawRequest } from '../support/raw-http.ts'
import { disposablePlaces } from '../support/story.ts'

const newPlace = disposablePlaces()

const ended = { code: 0, signal: null }
const withoutFiles = (place: Place) => ({ ...tracesOf(place), files: [] })
const busy = (place: Place) => slotsOf(place).filter(({ runPids }) => runPids.length > 0).length

describe('a server that is stopped', () => {
  it('ends remaining runs as shutdown and answers each client first', async () => {
    const place = newPlace()
    const before = withoutFiles(place)
    const server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
    const call = callTool(server.url, {
      code: 'trap "" TERM; echo partial; (setsid sleep 60 &); sleep 60',
      language: 'bash',
    })
    const streamed = await follow(server.url, 'python', 'print("partial", flush=True)\nimport time\ntime.sleep(60)')
    await streamed.said('partial')
    await until(() => busy(place) === 2, 'both run')
    const stopped = server.stop()

    const { status, body } = await call
    expect(status).toBe(200)
    expect(body.result).toMatchObject({
      isError: true,
      structuredContent: { ending: { kind: 'shutdown' }, stdout: 'partial\n' },
    })
    expect(body.result?.content[0]?.text).toMatch(/killed because the server is shutting down/)
    expect(await streamed.result).toMatchObject({ type: 'result', ending: { kind: 'shutdown' }, stdout: 'partial\n' })
    expect(await stopped).toEqual(ended)
    expect(place.runs().map(({ ending }) => ending)).toEqual(Array(2).fill('{"kind":"shutdown"}'))
    expect(withoutFiles(place)).toEqual(before)
    expect(server.warnings).toEqual([])
  })

  it('lets a run finish within the drain time, and accepts no other', async () => {
    const place = newPlace()
    const server = await place.start('--no-prewarm-jails', '--drain-s', '20')
    const run = await follow(server.url, 'bash', 'echo on; sleep 1.5; echo done; exit 7')
    await run.said('on')
    const stopped = server.stop()
    await until(() => server.log.some(({ msg }) => msg === 'API server stopping'), 'it has begun to stop')
    const late = await execute(server.url, 'bash', 'echo late').catch(String)
    expect(late).toMatch(/503|fetch failed/)
    expect(await run.result).toMatchObject({ ending: { kind: 'exited', code: 7 }, stdout: 'on\ndone\n' })
    expect(await stopped).toEqual(ended)
    expect(server.warnings).toEqual([])
  })

  it('does not wait for idle, slow or silent clients', async () => {
    const place = newPlace()
    const before = withoutFiles(place)
    const server = await place.start('--no-prewarm-jails', '--no-prewarm-jails')
    const json = { host: `127.0.0.1:${server.port}`, 'content-type': 'application/json' }
    const half = connect(server.port, '127.0.0.1')
    half.write('POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n')
    const deaf = connect(server.port, '127.0.0.1').pause()
    const body = JSON.stringify({ code: 'print("x" * 900_000, flush=True); import time; time.sleep(60)' })
    deaf.write(rawRequest('POST', '/v1/sandbox/execute', { ...json, accept: 'application/x-ndjson' }, body))
    await until(() => busy(place) === 1, 'its run goes on')
    for (const socket of [half, deaf]) socket.on('error', () => undefined)
    expect(await within(server.stop(), 20_000, 'it stops')).toEqual(ended)
    expect(withoutFiles(place)).toEqual(before)
    for (const socket of [half, deaf]) socket.destroy()
  })

  it.each(['the supervisor', 'every process'])(
    'exits at once on a second signal to %s, and leaves nothing',
    async (to) => {
      const place = newPlace()
      const before = withoutFiles(place)
      const server = await place.start('--no-prewarm-jails', '--drain-s', '60')
      const run = await follow(server.url, 'bash', 'echo on; sleep 60')
      await run.said('on')
      const pids = to === 'every process' ? [server.runnerPid, server.frontPid] : []
      const all = [...pids, server.supervisorPid]
      for (const pid of all) process.kill(pid, 'SIGTERM')
      await until(() => server.log.some(({ msg }) => msg === 'API server stopping'), 'it has begun to stop')
      // The end of the first one can end the others before they are sent theirs.
      for (const pid of all) signalIfThere(pid, 'SIGTERM')
      expect((await within(server.exited, 10_000, 'it ends')).code).toBe(128 + 15)
      expect(withoutFiles(place)).toEqual(before)
    },
  )
})
