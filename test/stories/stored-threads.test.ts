import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, it } from 'vitest'
import { plain } from '../support/attacks.ts'
import { execute, follow } from '../support/calls.ts'
import { type Glovebox, killIfThere, type Place, program, until } from '../support/glovebox.ts'
import { disposablePlaces } from '../support/story.ts'

const newPlace = disposablePlaces()

const flags = ['--limit-thread', '32MiB', '--storage-reserve', '0', '--front-grace-s', '1']

async function call(
  url: string,
  method: string,
  path: string,
  body?: object,
): Promise<{ status: number; body: unknown }> {
  const response = await fetch(`${url}${path}`, {
    method,
    ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  })
  const text = await response.text()
  return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
}

function rowsOf(place: Place): { id: string; state: string | null }[] {
  const database = new DatabaseSync(join(place.directory, 'home/front/glovebox.db'), { readOnly: true })
  try {
    return database.prepare('select id, state from threads order by id').all() as { id: string; state: string | null }[]
  } finally {
    database.close()
  }
}

const imagesOf = (place: Place): string[] =>
  readdirSync(join(place.directory, 'home/storage/threads/org_dev'))
    .map((name) => name.replace(/\.ext4$/, ''))
    .sort()

const isSettled = (place: Place): boolean => rowsOf(place).every(({ state }) => state === null)

/** Kills one of the processes shortly after many calls began, and waits until the server has recovered. */
async function killAmid(
  server: Glovebox,
  victim: 'runner' | 'front',
  calls: () => Promise<unknown>[],
  afterMs: number,
) {
  const pidNow = () => (victim === 'runner' ? server.runnerPid : server.frontPid)
  const pid = pidNow()
  const answers = Promise.allSettled(calls())
  await new Promise((resolve) => setTimeout(resolve, afterMs))
  killIfThere(pid)
  await answers
  const isAnother = () => {
    try {
      return pidNow() !== pid
    } catch {
      return false
    }
  }
  await until(isAnother, 'another has taken its place')
  await until(async () => (await server.readiness()) === 200, 'the server is ready again')
  await until(() => isSettled(server.place), 'nothing is half done')
}

describe('threads of a real server', () => {
  it('are forked while other runs execute but not while in use, and then diverge', async () => {
    const server = await newPlace().start(...flags)
    const { url } = server
    await execute(url, 'bash', 'head -c 3000000 /dev/urandom >data; sha256sum <data >sum; mkdir d; ln -s data d/l', {
      thread_id: 'origin',
    })
    const busy = await follow(url, 'bash', 'echo on; sleep 60', { thread_id: 'busy' })
    await busy.said('on')
    expect(await call(url, 'POST', '/v1/threads/origin/fork', { to: 'copy' })).toMatchObject({ status: 201 })
    expect((await call(url, 'POST', '/v1/threads/busy/fork', { to: 'other' })).status).toBe(409)
    expect((await call(url, 'DELETE', '/v1/threads/busy')).status).toBe(409)
    const seen = await execute(url, 'bash', 'sha256sum <data; cat sum; readlink d/l; echo more >data', {
      thread_id: 'copy',
    })
    const [now, before, link] = seen.stdout.trim().split('\n')
    expect([now, link]).toEqual([before, 'data'])
    const kept = await execute(url, 'bash', 'sha256sum <data | diff - sum && echo same', { thread_id: 'origin' })
    expect(kept.stdout).toBe('same\n')
    await call(url, 'POST', `/v1/executions/${busy.runId}/cancel`, {})
    await busy.result
    expect(await call(url, 'GET', '/v1/threads/copy')).toMatchObject({
      body: { quota_bytes: 32 * 1024 * 1024, busy: false },
    })
    expect((await call(url, 'DELETE', '/v1/threads/copy')).status).toBe(204)
    expect(imagesOf(server.place)).toEqual(['busy', 'origin'])
    expect(server.warnings).toEqual([])
  }, 120_000)

  for (const victim of ['runner', 'front'] as const) {
    it(`exist completely or not at all when the ${victim} is killed during forks and deletions`, async () => {
      const place = newPlace()
      const server = await place.start(...flags)
      await execute(server.url, 'bash', 'head -c 20000000 /dev/urandom >data; sha256sum <data >sum', {
        thread_id: 'origin',
      })
      for (const afterMs of [5, 40, 120]) {
        const names = Array.from({ length: 6 }, (_, n) => `copy-${afterMs}-${n}`)
        const forks = () => names.map((to) => call(server.url, 'POST', '/v1/threads/origin/fork', { to }))
        await killAmid(server, victim, forks, afterMs)
        const ids = rowsOf(place).map(({ id }) => id)
        expect(imagesOf(place)).toEqual(ids)
        for (const name of ids) {
          const whole = await execute(server.url, 'bash', 'sha256sum <data | diff - sum && echo whole', {
            thread_id: name,
          })
          expect(whole.stdout).toBe('whole\n')
        }
        for (const to of names.filter((name) => !ids.includes(name))) {
          await until(
            async () => (await call(server.url, 'POST', '/v1/threads/origin/fork', { to })).status === 201,
            `${to} is made`,
          )
        }
        const deletions = () => names.map((name) => call(server.url, 'DELETE', `/v1/threads/${name}`))
        await killAmid(server, victim, deletions, afterMs / 5)
        expect(imagesOf(place)).toEqual(rowsOf(place).map(({ id }) => id))
      }
    }, 240_000)
  }
})

describe('volumes of a real server', () => {
  it('are created by a command, mounted in every run of the profile, and deleted by the server on command', async () => {
    const place = newPlace()
    const server = await place.start(...flags, '--volumes', 'data:rw')
    const { url } = server
    const glovebox = (...words: string[]) =>
      plain(
        program,
        ...words,
        ...[
          '--org',
          'Development',
          '--home',
          join(place.directory, 'home'),
          '--state-dir',
          join(place.directory, 'state'),
        ],
        ...['--front-uid', `${place.frontUid}`, '--front-gid', `${place.frontUid}`],
      )
    const missing = await call(url, 'POST', '/v1/sandbox/execute', { code: 'true', language: 'bash' })
    expect(missing).toMatchObject({ status: 409, body: { message: expect.stringContaining('volume data') } })
    expect(await glovebox('volumes', 'create', 'data', '--quota', '16MiB')).toMatchObject({ code: 0 })
    const runs = await Promise.all(
      Array.from({ length: 8 }, (_, n) =>
        execute(
          url,
          n % 2 ? 'bash' : 'python',
          n % 2 ? `echo ${n} >/volumes/data/${n}` : `open("/volumes/data/${n}", "w")`,
        ),
      ),
    )
    expect(runs.map(({ exit_code: code }) => code)).toEqual(Array(8).fill(0))
    expect((await execute(url, 'bash', 'ls /volumes/data | tr "\\n" " "')).stdout).toBe('0 1 2 3 4 5 6 7 ')
    expect(await call(url, 'GET', '/v1/volumes')).toMatchObject({
      body: { data: [{ slug: 'data', mode: 'rw', quota_bytes: 16 * 1024 * 1024 }], next_cursor: null },
    })
    expect((await glovebox('volumes', 'list')).stdout).toContain('data')
    expect(await glovebox('volumes', 'create', 'spare')).toMatchObject({ code: 0 })
    expect(await glovebox('volumes', 'rename', 'spare', 'other')).toMatchObject({ code: 0 })
    expect(await glovebox('volumes', 'grow', 'other', '2GiB')).toMatchObject({ code: 0 })
    expect(await glovebox('volumes', 'delete', 'other')).toMatchObject({ code: 0 })
    await until(async () => !(await glovebox('volumes', 'list')).stdout.includes('other'), 'it is erased')
    expect(server.warnings).toEqual([])
    // The command does not know the flags that the server was started with.
    expect(await glovebox('volumes', 'delete', 'data')).toMatchObject({ code: 0 })
    await until(() => server.warnings.length > 0, 'the server says that it keeps the volume')
    expect(server.warnings).toMatchObject([{ msg: 'volume not removed: a profile mounts it', volume: 'data' }])
    expect((await execute(url, 'bash', 'ls /volumes/data | wc -l')).stdout).toBe('8\n')
  }, 120_000)
})
