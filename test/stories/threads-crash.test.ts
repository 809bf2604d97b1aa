import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, it } from 'vitest'
import { execute, follow, post } from '../support/calls.ts'
import { type Glovebox, killIfThere, type Place, until } from '../support/glovebox.ts'
import { type Traces, tracesOf } from '../support/machine.ts'
import { loopDevicesOf } from '../support/storage-traces.ts'
import { disposablePlaces } from '../support/story.ts'

const newPlace = disposablePlaces()

const flags = ['--limit-thread', '32MiB', '--storage-reserve', '0', '--front-grace-s', '1']

/** Writes without end, to many small files and one growing file, with an occasional sync. */
const writer = `
import os
print('on', flush=True)
n = 0
while True:
    n += 1
    with open(f'f{n % 200}', 'w') as f: f.write(str(n) * 100)
    with open('log', 'a') as f:
        f.write(f'{n}\\n'); f.flush()
        if n % 50 == 0: os.fsync(f.fileno())
    if os.path.getsize('log') > 1 << 20: os.truncate('log', 0)
`

const imageOf = (place: Place): string => join(place.directory, 'home/storage/threads/org_dev/torn.ext4')

function locksOf(place: Place): unknown[] {
  const database = new DatabaseSync(join(place.directory, 'home/front/glovebox.db'), { readOnly: true })
  try {
    return database.prepare('select * from threads where locked_by is not null').all()
  } finally {
    database.close()
  }
}

async function startWriting(place: Place): Promise<Glovebox> {
  const server = await place.start(...flags)
  await execute(server.url, 'bash', 'echo before >kept; sync', { thread_id: 'torn' })
  const run = await follow(server.url, 'python', writer, { thread_id: 'torn' })
  run.result.catch(() => undefined) // Neither its ending nor whether it has one matters.
  await run.said('on')
  expect(locksOf(place)).toHaveLength(1)
  return server
}

/** The next call on the thread succeeds as soon as the lock is released, on an intact filesystem. */
async function worksAgain(server: Glovebox, place: Place): Promise<void> {
  const body = { language: 'bash', thread_id: 'torn', code: 'cat kept && echo after >>kept && test -s log -o -e log' }
  await until(async () => {
    const answer = await post<{ stdout?: string }>(`${server.url}/v1/sandbox/execute`, body).catch(() => undefined)
    if (answer?.status === 200) expect(answer.body).toMatchObject({ stdout: 'before\n', exit_code: 0 })
    return answer?.status === 200
  }, 'the thread works again')
  expect(locksOf(place)).toEqual([])
}

async function leavesNothing(server: Glovebox, place: Place, before: Traces): Promise<void> {
  expect(await server.stop()).toEqual({ code: 0, signal: null })
  await until(() => loopDevicesOf(place.directory).length === 0, 'no loop device is left')
  expect({ ...tracesOf(place), files: [] }).toEqual({ ...before, files: [] })
  expect(() => execFileSync('e2fsck', ['-fn', imageOf(place)], { stdio: 'pipe' })).not.toThrow()
}

describe('a kill during a write to a thread', () => {
  it('of the runner leaves an intact filesystem, a free lock and nothing else on the host', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await startWriting(place)
    for (let kill = 0; kill < 3; kill++) {
      killIfThere(server.runnerPid)
      await until(async () => (await server.readiness()) === 503, 'its absence is noticed')
      await until(async () => (await server.readiness()) === 200, 'it is back')
      const run = await follow(server.url, 'python', writer, { thread_id: 'torn' }).catch(() => undefined)
      run?.result.catch(() => undefined)
      await run?.said('on')
    }
    killIfThere(server.runnerPid)
    await worksAgain(server, place)
    await leavesNothing(server, place, before)
  })

  it('of the front leaves the thread to its run, and then releases it', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const server = await startWriting(place)
    const { frontPid } = server
    const runId = place.runs().at(-1)?.id
    killIfThere(frontPid)
    await until(async () => (await server.readiness()) === 200 && server.frontPid !== frontPid, 'another front serves')
    const busy = await post(`${server.url}/v1/sandbox/execute`, { code: 'true', language: 'bash', thread_id: 'torn' })
    expect(busy.status).toBe(409)
    await post(`${server.url}/v1/executions/${runId}/cancel`, {})
    await worksAgain(server, place)
    await leavesNothing(server, place, before)
  })

  it('of the supervisor ends everything; the next start finds the thread intact and free', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    const first = await startWriting(place)
    killIfThere(first.supervisorPid)
    await until(() => tracesOf(place).processes.length === 0, 'everything has ended')
    await until(() => loopDevicesOf(place.directory).length === 0, 'no loop device is left')
    const second = await place.start(...flags)
    await worksAgain(second, place)
    await leavesNothing(second, place, before)
  })
})
