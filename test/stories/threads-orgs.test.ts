import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { execute, follow, post } from '../support/calls.ts'
import { type Glovebox, Place } from '../support/glovebox.ts'
import { manageKeys, newKey, type OwnKey } from '../support/keys.ts'

const place = new Place()
const config = join(place.directory, 'glovebox.yaml')
let server: Glovebox
let acme: OwnKey
let rival: OwnKey

const serve = (...words: string[]) =>
  place.start('--no-dev', '--config', config, '--storage-reserve', '0', '--thread-idle-s', '1', ...words)

beforeAll(async () => {
  writeFileSync(config, 'profiles: { bare: { storage: none }, roomy: { limit_thread: 64MiB } }\n')
  server = await serve('--limit-thread', '16MiB')
  acme = await newKey(place, '--org', 'acme', '--config', config)
  rival = await newKey(place, '--org', 'rival', '--config', config)
}, 60_000)
afterAll(() => place.remove())

const inThread = ({ headers }: OwnKey, thread_id: string, code: string) =>
  execute(server.url, 'bash', code, { thread_id }, headers)

async function download({ headers }: OwnKey, id: string, path: string): Promise<string> {
  const args = { source: 'thread', id, path }
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'files_download', arguments: args } }
  return JSON.stringify((await post(`${server.url}/mcp`, message, headers)).body)
}

const images = () => readdirSync(join(place.directory, 'home/storage/threads'))

describe('a thread of one organization', () => {
  it('is separate from a thread of the same name in another organization', async () => {
    await inThread(acme, 'plans', 'echo the-plan-of-acme >acme-plan')
    const looked = await inThread(
      rival,
      'plans',
      'ls -A; cat acme-plan; find / -name acme-plan -not -path "/proc/*" 2>/dev/null',
    )
    expect(looked.stdout).toBe('')
    await inThread(rival, 'plans', 'echo of-the-rival >acme-plan')
    expect((await inThread(acme, 'plans', 'cat acme-plan')).stdout).toBe('the-plan-of-acme\n')
    expect(await download(rival, 'plans', 'acme-plan')).toContain('of-the-rival')
    expect(images()).toHaveLength(2)
  })

  it('does not exist for another organization, by download either, and looks like one that never existed', async () => {
    await inThread(acme, 'private', 'echo secret-of-acme >secret')
    const answers = [await download(rival, 'private', 'secret'), await download(rival, 'never-was', 'secret')]
    expect(answers[0]).toContain('The thread private does not exist')
    expect(answers[0]?.replaceAll('private', '*')).toBe(answers[1]?.replaceAll('never-was', '*'))
    for (const path of ['../private/secret', `../../${images()[0]}/private`]) {
      expect(await download(rival, 'plans', path)).toContain('Invalid path')
    }
    for (const id of [`../${images()[0]}/private`, '..', 'a/b', 'private.ext4/../x']) {
      expect(await download(rival, id, 'secret')).toContain('id must be 1 to 128 letters')
      await expect(inThread(rival, id, 'true')).rejects.toThrow(/400.*thread_id must be/)
    }
  })

  it('does not block another organization while it is busy', async () => {
    const going = await follow(server.url, 'bash', 'echo on; sleep 60', { thread_id: 'same' }, acme.headers)
    await going.said('on')
    await expect(inThread(acme, 'same', 'true')).rejects.toThrow(/409/)
    expect(await inThread(rival, 'same', 'echo mine')).toMatchObject({ stdout: 'mine\n' })
    const cancel = (key: OwnKey) => post(`${server.url}/v1/executions/${going.runId}/cancel`, {}, key.headers)
    expect((await cancel(rival)).status).toBe(404)
    expect((await cancel(acme)).status).toBe(200)
    expect(await going.result).toMatchObject({ ending: { kind: 'cancelled' } })
  })

  it('belongs to the organization: it survives a revoked key, and every other key can use it', async () => {
    const leaving = await newKey(place, '--org', 'acme', '--config', config)
    const going = await follow(
      server.url,
      'bash',
      'echo kept >note; echo on; sleep 60',
      { thread_id: 'left' },
      leaving.headers,
    )
    await going.said('on')
    await manageKeys(place, ['revoke', leaving.id, '--config', config])
    expect(await going.result).toMatchObject({ ending: { kind: 'cancelled' } })
    expect((await inThread(acme, 'left', 'cat note')).stdout).toBe('kept\n')
    await expect(inThread(leaving, 'left', 'cat note')).rejects.toThrow(/401/)
  })

  it('is rejected for a key whose profile has no storage, and the tool is not listed', async () => {
    const bare = await newKey(place, '--org', 'acme', '--profile', 'bare', '--config', config)
    await expect(inThread(bare, 'plans', 'cat acme-plan')).rejects.toThrow(/no storage/)
    expect(await download(bare, 'plans', 'acme-plan')).toContain('Unknown tool: files_download')
  })

  it('grows with its profile and keeps its data, and does not shrink with it', async () => {
    const roomy = await newKey(place, '--org', 'acme', '--profile', 'roomy', '--config', config)
    const fill = 'head -c 40M /dev/zero >big && cat acme-plan'
    expect((await inThread(acme, 'plans', fill)).ending).toEqual({ kind: 'disk_quota', limit_bytes: 16 * 1024 ** 2 })
    await server.stop()
    server = await serve('--limit-thread', '16MiB')
    expect(await inThread(roomy, 'plans', fill)).toMatchObject({ exit_code: 0, stdout: 'the-plan-of-acme\n' })
    expect((await inThread(acme, 'plans', 'stat -c %s big')).stdout).toBe(`${40 * 1024 ** 2}\n`)
  })
})
