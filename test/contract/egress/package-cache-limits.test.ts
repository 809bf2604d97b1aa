/** The package cache as programs of a jail reach it: under the policy, the limits and the secrets of the jail. */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { PackageCache } from '../../../src/egress/packages/package-cache.ts'
import type { BrokerNetwork } from '../../../src/egress/protocol.ts'
import {
  closeJailsAfterAll,
  noLimits,
  openJail,
  received,
  receivedUntil,
  type TestJail,
} from '../../support/egress-jail.ts'
import { serveWheels, type WheelIndex } from '../../support/wheel-index.ts'

closeJailsAfterAll()

const host = 'packages.glovebox.internal'
const placeholder = `GLOVEBOX_SECRET_${'7'.repeat(32)}`
const directory = mkdtempSync(join(tmpdir(), 'glovebox-packages-'))
let index: WheelIndex
let cache: PackageCache

beforeAll(async () => {
  index = await serveWheels({
    'one-1.0.whl': randomBytes(300_000),
    'held-1.0.whl': (response) => void response.write(Buffer.alloc(1024 * 1024)),
  })
  const settings = {
    upstreams: { pip: `${index.url}/simple` },
    allow: [],
    directory,
    sizeBytes: 2 ** 30,
    reserveBytes: 0,
  }
  cache = new PackageCache(settings, { isOwn: () => true, roots: [] })
})
afterAll(async () => {
  await cache.close()
  index.close()
  rmSync(directory, { recursive: true })
})

const jailWith = (network: Partial<BrokerNetwork>): Promise<TestJail> =>
  openJail({ rules: [host], ...network }, {}, '127.0.0.1', [], undefined, Promise.resolve(cache))

async function answerTo(jail: TestJail, path: string, headers = '', method = 'GET'): Promise<string> {
  const socket = await jail.dial()
  socket.write(`${method} http://${host}${path} HTTP/1.1\r\nHost: ${host}\r\n${headers}Connection: close\r\n\r\n`)
  const answer = await received(socket)
  socket.destroy()
  return answer
}

describe('the package cache in a jail', () => {
  it('counts its bytes toward the limit of the run', async () => {
    const jail = await jailWith({})
    expect((await answerTo(jail, '/pip/one/one-1.0.whl')).length).toBeGreaterThan(300_000)
    const [use, ...others] = jail.jail.uses
    expect(others).toEqual([])
    expect(use).toMatchObject({ host, port: 80, verdict: 'allowed', connections: 1 })
    expect(use?.bytes).toBeGreaterThan(300_000)
    const limited = await jailWith({ limits: { ...noLimits, bytes: 200_000 } })
    expect((await answerTo(limited, '/pip/one/one-1.0.whl')).length).toBeLessThan(300_000)
    const ofRequests = await jailWith({ limits: { ...noLimits, sentBytes: 1_000 } })
    expect(await answerTo(ofRequests, '/pip/one/', `x-fill: ${'x'.repeat(2_000)}\r\n`)).toContain('403 Refused')
  })

  it('ends an open download when a changed policy does not allow it', async () => {
    const jail = await jailWith({})
    const socket = await jail.dial()
    socket.write(`GET http://${host}/pip/one/held-1.0.whl HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
    await receivedUntil(socket, '\r\n\r\n')
    const ended = received(socket)
    jail.jail.change({ policy: 'allow', rules: ['other.example'], limits: noLimits })
    await ended
    socket.destroy()
    expect(await answerTo(jail, '/pip/one/')).toContain('is not listed')
  })

  it('counts requests by what became of them, and the bytes of both sides', async () => {
    const bytes = 300_000
    const own = await serveWheels({ 'one-1.0.whl': randomBytes(bytes) })
    const settings = { upstreams: { pip: `${own.url}/simple`, npm: `${own.url}/npm` }, allow: [], reserveBytes: 0 }
    const place = mkdtempSync(join(tmpdir(), 'glovebox-packages-'))
    const counting = new PackageCache(
      { ...settings, directory: place, sizeBytes: 2 ** 30 },
      { isOwn: () => true, roots: [] },
    )
    try {
      const jail = await openJail({ rules: [host] }, {}, '127.0.0.1', [], undefined, Promise.resolve(counting))
      await answerTo(jail, '/pip/one/')
      for (let times = 0; times < 3; times++) await answerTo(jail, '/pip/one/one-1.0.whl')
      await answerTo(jail, '/pip/one/two-1.0.whl')
      await answerTo(jail, '/pip/one/one-1.0.whl', '', 'POST')
      await answerTo(jail, '/elsewhere/')
      own.close()
      expect(await answerTo(jail, '/pip/other/')).toContain('502')
      const { managers, ...all } = counting.totals
      // The page and the file.
      expect(all).toMatchObject({ files: 2, sizeBytes: 2 ** 30, evicted: 0 })
      expect(all.usedBytes).toBeGreaterThan(bytes)
      expect(managers.pip?.requests).toEqual({ document: 1, downloaded: 1, kept: 2, absent: 2, failed: 1 })
      expect(managers.pip?.fetchedBytes).toBeGreaterThan(bytes)
      expect(managers.pip?.fetchedBytes).toBeLessThan(2 * bytes)
      expect(managers.pip?.servedBytes).toBeGreaterThan(3 * bytes)
      expect(managers.npm).toEqual({ requests: {}, fetchedBytes: 0, servedBytes: 0 })
      expect(managers.apt).toBeUndefined()
    } finally {
      await counting.close()
      own.close()
      rmSync(place, { recursive: true })
    }
  })

  it('is not reached through a path that the policy does not allow', async () => {
    const jail = await jailWith({ rules: [`GET ${host}/pip/one/`] })
    expect(await answerTo(jail, '/pip/one/')).toContain('one-1.0.whl')
    expect(await answerTo(jail, '/pip/two/')).toContain('is listed, but not for GET of this path')
  })

  it('receives no secret, and refuses the placeholder of one', async () => {
    const secret = { name: 'API_KEY', placeholder, value: 'sk-the-real-value', hosts: ['api.example'] }
    const jail = await jailWith({ secrets: [{ ...secret, places: ['header'] }] })
    for (const [path, header] of [
      ['/pip/one/', `authorization: Bearer ${placeholder}\r\n`],
      [`/pip/${placeholder}/`, ''],
    ] as const)
      expect(await answerTo(jail, path, header)).toMatch(/^HTTP\/1.1 403 /)
    expect(jail.jail.uses.filter(({ verdict }) => verdict === 'refused_secret')[0]?.connections).toBe(2)
    // Nothing else of a request reaches the index either.
    index.headers.length = 0
    await answerTo(jail, '/pip/one/absent.whl', 'authorization: Bearer mine\r\n')
    await answerTo(jail, '/pip/other/', 'authorization: Bearer mine\r\n')
    expect(index.headers).toEqual([undefined])
  })
})
