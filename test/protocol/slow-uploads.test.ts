import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'
import { RawConnection, rawRequest } from '../support/raw-http.ts'

const MiB = 1024 * 1024
/** More than is received before a place and a thread are taken. */
const muchBytes = 300 * 1024
const limits = { perKey: 50, perOrg: 50, transfersPerKey: 2, bufferBytes: 64 * MiB }
type Headers = Record<string, string>

let front: Front
let org: string
beforeAll(async () => {
  front = await openFront(threadsProfile, { dev: false }, undefined, undefined, limits)
  org = (await createOrg(front.core.adminContext, operator, 'slow')).id
})
afterAll(() => front.close())

async function newKey(on = front, of = org): Promise<Headers> {
  return { 'x-api-key': (await createKey(on.core.adminContext, operator, of, {}, [])).secret }
}

async function linkFor(key: Headers, id: string, size: number, on = front): Promise<string> {
  const response = await on.post('/v1/files/upload', { source: 'thread', id, path: 'f', size }, key)
  return ((await response.json()) as { url: string }).url
}

/** Begins an upload of 1 MiB and sends so many bytes of it. */
async function begin(key: Headers, id: string, sentBytes: number, on = front): Promise<RawConnection> {
  const { pathname } = new URL(await linkFor(key, id, MiB, on))
  const connection = new RawConnection(on.port)
  const head = { host: `127.0.0.1:${on.port}`, 'content-length': `${MiB}`, connection: 'keep-alive' }
  await connection.write(rawRequest('PUT', pathname, head))
  await connection.write(Buffer.alloc(sentBytes))
  return connection
}

async function upload(key: Headers, id: string): Promise<number> {
  return (await fetch(await linkFor(key, id, 3), { method: 'PUT', body: 'abc' })).status
}

async function run(key: Headers, id: string, code: string, on = front): Promise<{ status: number; stdout?: string }> {
  const response = await on.post('/v1/sandbox/execute', { language: 'bash', code, thread_id: id }, key)
  return { status: response.status, stdout: ((await response.json()) as { stdout?: string }).stdout ?? '' }
}

describe('an upload that arrives slowly', () => {
  it('holds no thread and no place before much of it has arrived', async () => {
    const key = await newKey()
    const slow = await Promise.all(Array.from({ length: 5 }, () => begin(key, 'trickle', 1)))
    expect(await run(key, 'trickle', 'echo ran; ls -A')).toEqual({ status: 200, stdout: 'ran\n' })
    expect(await upload(key, 'trickle')).toBe(200)
    for (const connection of slow) connection.destroy()
  })

  it('takes a place of its own key only, and the next upload of that key gets it afterwards', async () => {
    const [key, colleague] = [await newKey(), await newKey()]
    const { files } = front.runner
    const { write } = files
    let begun = 0
    files.write = (...args) => {
      begun += 1
      return write.apply(files, args)
    }
    const slow = await Promise.all(['a', 'b'].map((id) => begin(key, id, muchBytes)))
    await expect.poll(() => begun).toBe(2)
    let isDone = false
    const waiting = upload(key, 'c').finally(() => (isDone = true))
    expect(await upload(colleague, 'd')).toBe(200)
    expect(isDone).toBe(false)
    for (const connection of slow) connection.destroy()
    expect(await waiting).toBe(200)
    files.write = write
    await expect.poll(() => run(colleague, 'a', 'ls -A')).toEqual({ status: 200, stdout: '' })
  })

  it.each([
    ['before much has arrived', 1],
    ['after it has a place', muchBytes],
  ])('is refused with 408 and leaves nothing when it is below the minimum rate: %s', async (_, sentBytes) => {
    const pace = { minBytesPerSecond: 10 * MiB, windowMs: 200 }
    const strict = await openFront(threadsProfile, { dev: false, uploadPace: pace })
    const { id: strictOrg } = await createOrg(strict.core.adminContext, operator, 'strict')
    const key = await newKey(strict, strictOrg)
    const connection = await begin(key, 'late', sentBytes, strict)
    const response = await connection.response()
    expect([response?.status, JSON.parse(response?.body ?? '')]).toEqual([
      408,
      expect.objectContaining({ error: 'request_timeout', message: expect.stringContaining('slower than') }),
    ])
    expect(await run(key, 'late', 'ls -A', strict)).toEqual({ status: 200, stdout: '' })
    connection.destroy()
    await strict.close()
  })
})
