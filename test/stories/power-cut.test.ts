import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { execute, post } from '../support/calls.ts'
import { builtProgram, type Glovebox, Place, until } from '../support/glovebox.ts'
import { manageKeys, newKey, runCommand } from '../support/keys.ts'
import { inPrivateMounts } from '../support/private-mounts.ts'
import { openReceiver, type Receiver } from '../support/receiver.ts'
import { VolatileDisk } from '../support/volatile-disk.ts'

const mib = 1024 * 1024

inPrivateMounts(import.meta.filename, () => {
  describe('a power cut', () => {
    const place = new Place(builtProgram)
    let disk: VolatileDisk
    let server: Glovebox
    let receiver: Receiver

    let idleS = '0'
    let durability = 'seconds'
    const start = () =>
      place.start(
        ...['--storage', 'threads', '--storage-reserve', '0', '--limit-thread', '16MiB', '--slots-ready', '0'],
        ...['--outbound-allow', '127.0.0.1', '--thread-idle-s', idleS, '--thread-durability', durability],
      )
    const restart = async () => {
      await server.end()
      server = await start()
    }
    /** The power is cut as soon as `act` has its answer; what it returns must hold on the next start. */
    async function afterCut<T>(act: () => Promise<T>): Promise<T> {
      const answer = await act()
      await disk.cutPower(server)
      server = await start()
      return answer
    }

    const call = async (method: string, path: string, body?: unknown, headers: object = {}) => {
      const json = body === undefined ? {} : { 'content-type': 'application/json' }
      const response = await fetch(`${server.url}${path}`, {
        method,
        headers: { ...json, ...headers },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      })
      const text = await response.text()
      return { status: response.status, body: text === '' ? {} : JSON.parse(text) }
    }
    const inThread = (id: string, code: string, more: object = {}) =>
      execute(server.url, 'bash', code, { thread_id: id, ...more })
    const instanceId = () => readFileSync(join(disk.home, 'instance'), 'utf8')
    const auditVerify = (...words: string[]) => runCommand(place, ['audit', 'verify', ...words])

    beforeAll(async () => {
      receiver = await openReceiver()
      disk = await VolatileDisk.open(place, 256 * mib)
      server = await start()
    }, 60_000)

    afterAll(async () => {
      receiver.close()
      await place.lastServer?.end()
      await disk.unmount()
      disk.remove()
      await place.remove()
    }, 60_000)

    it('right after the first start leaves a home that starts again as the same instance', async () => {
      const before = await afterCut(async () => instanceId())
      expect(before).toMatch(/^[0-9a-f]{8}\n$/)
      expect(instanceId()).toBe(before)
    })

    it('keeps what an administrator has changed', async () => {
      const key = await afterCut(() => newKey(place))
      expect((await manageKeys(place, ['list'])).stdout).toContain(key.id)
    })

    it('keeps a thread with its subject from its first run on', async () => {
      await afterCut(() => inThread('first', 'echo one >one', { subject: 'person-a' }))
      expect((await call('GET', '/v1/threads/first')).status).toBe(200)
      const other = { language: 'bash', code: 'true', thread_id: 'first', subject: 'person-b' }
      expect((await call('POST', '/v1/sandbox/execute', other)).status).toBe(409)
    })

    it('keeps a thread that was forked', async () => {
      await inThread('origin', 'echo kept >file; sync')
      const { status } = await afterCut(() => call('POST', '/v1/threads/origin/fork', { to: 'copy' }))
      expect(status).toBe(201)
      expect((await call('GET', '/v1/threads/copy')).status).toBe(200)
      expect(await inThread('copy', 'cat file')).toMatchObject({ stdout: 'kept\n' })
    })

    it('does not restore a thread that was deleted', async () => {
      await inThread('gone', 'echo gone >file; sync')
      const { status } = await afterCut(() => call('DELETE', '/v1/threads/gone'))
      expect(status).toBe(204)
      expect((await call('GET', '/v1/threads/gone')).status).toBe(404)
      await until(async () => {
        const run = await inThread('gone', 'ls').catch(() => undefined)
        if (run) expect(run.stdout).toBe('')
        return run !== undefined
      }, 'a new thread of this name can be created')
    })

    it('keeps an uploaded file, and its link for one use stays used', async () => {
      const size = 5
      const link = { source: 'thread', id: 'uploads', path: 'a/b.txt', size, once: true }
      const path = new URL((await call('POST', '/v1/files/upload', link)).body.url).pathname
      const put = () => fetch(`${server.url}${path}`, { method: 'PUT', body: 'bytes' })
      expect((await afterCut(put)).status).toBe(200)
      expect(await inThread('uploads', 'cat a/b.txt')).toMatchObject({ stdout: 'bytes' })
      expect((await put()).status).toBe(409)
    })

    it('keeps what a program has synced, and the files of a thread that was unmounted', async () => {
      await inThread('unmounted', 'echo here >file')
      await inThread('unmounted', 'true')

      const sync = 'import os\nf = open("synced", "w"); f.write("here"); f.flush(); os.fsync(f.fileno())'
      await afterCut(() => execute(server.url, 'python', sync, { thread_id: 'programs' }))
      expect(await inThread('programs', 'cat synced')).toMatchObject({ stdout: 'here' })
      expect(await inThread('unmounted', 'cat file')).toMatchObject({ stdout: 'here\n' })
    })

    describe('while threads stay mounted', () => {
      beforeAll(async () => {
        idleS = '300'
        await restart()
      })

      /** What an answer has called changed, without syncing it: a new file, a replaced one and one in a new directory. */
      const change = async (id: string) => {
        const code =
          'mkdir -p a/b; echo new >a/b/file; echo second >draft; mv draft replaced; head -c 1M /dev/zero >large'
        const { files } = (await inThread(id, code)) as Awaited<ReturnType<typeof inThread>> & {
          files: { path: string }[]
        }
        expect(files.map(({ path }) => path).toSorted()).toEqual(['a/b/file', 'large', 'replaced'])
      }
      const look = async (id: string) => (await inThread(id, 'cat a/b/file replaced; wc -c <large')).stdout

      it('keeps the files that an answer has called changed, after five seconds', async () => {
        // The disk loses what no process has synced.
        const unsynced = join(disk.home, 'unsynced')
        await inThread('seconds', 'echo first >replaced; sync')
        await afterCut(async () => {
          await change('seconds')
          await sleep(5_000)
          writeFileSync(unsynced, 'lost')
        })
        expect(existsSync(unsynced) && readFileSync(unsynced, 'utf8')).not.toBe('lost')
        expect(await look('seconds')).toBe('new\nsecond\n1048576\n')
      })

      it('keeps them with the answer where thread_durability is answer', async () => {
        durability = 'answer'
        await restart()
        await inThread('answer', 'echo first >replaced')
        await afterCut(() => change('answer'))
        expect(await look('answer')).toBe('new\nsecond\n1048576\n')
      })
    })

    it('does not repeat a run whose idempotency key was used', async () => {
      const body = { language: 'bash', code: 'echo once', idempotency_key: 'only-once' }
      const before = await afterCut(() => call('POST', '/v1/sandbox/execute', body))
      expect(before.status).toBe(200)
      expect((await call('POST', '/v1/sandbox/execute', body)).body.trace_id).toBe(before.body.trace_id)
    })

    it('delivers the ending of a run that was accepted, and does not change one that was delivered', async () => {
      const later = { language: 'bash', webhook_url: receiver.url }
      const prefer = { prefer: 'respond-async' }
      const accepted = await afterCut(() =>
        post<{ trace_id: string }>(`${server.url}/v1/sandbox/execute`, { ...later, code: 'sleep 60' }, prefer),
      )
      await until(() => receiver.received.length === 1, 'the ending is delivered')
      expect(receiver.received[0]?.body).toMatchObject({ trace_id: accepted.body.trace_id, status: 'failed' })
      await afterCut(async () => {
        await post(`${server.url}/v1/sandbox/execute`, { ...later, code: 'echo done' }, prefer)
        await until(() => receiver.received.length === 2, 'the second ending is delivered')
      })
      const { trace_id, status } = receiver.received[1]?.body ?? {}
      expect(status).toBe('success')
      expect((await call('GET', `/v1/executions/${trace_id}`)).body).toMatchObject({ status })
    })

    it('removes no audit line before an anchor that was returned', async () => {
      await execute(server.url, 'bash', 'true')
      const { stdout: anchor } = await afterCut(() => auditVerify())
      expect(anchor).toMatch(/^\d+:[0-9a-f]{64}\n$/)
      expect(await auditVerify('--anchor', anchor.trim())).toMatchObject({ code: 0 })
    })

    it('leaves an undamaged database, in which every run has its ending', () => {
      const database = new DatabaseSync(join(disk.home, 'front', 'glovebox.db'), { readOnly: true })
      try {
        expect(database.prepare('pragma integrity_check').all()).toEqual([{ integrity_check: 'ok' }])
        expect(database.prepare('select id from runs where finished_at is null').all()).toEqual([])
      } finally {
        database.close()
      }
    })
  })
})
