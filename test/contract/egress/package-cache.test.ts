/** The package cache against indexes that behave, fail and lie, all of them on loopback. */
import { createHash, randomBytes } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { PackageCache } from '../../../src/egress/packages/package-cache.ts'
import { serveWheels, sha256, type WheelFiles, type WheelIndex } from '../../support/wheel-index.ts'

const MiB = 1024 * 1024
const closings: (() => unknown)[] = []
let directory: string
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'glovebox-packages-'))
})
afterEach(async () => {
  for (const close of closings.splice(0).reverse()) await close()
  rmSync(directory, { recursive: true })
})

async function serveIndex(...index: Parameters<typeof serveWheels>): Promise<WheelIndex> {
  const served = await serveWheels(...index)
  closings.push(served.close)
  return served
}

function openCache(upstream: WheelIndex, sizeBytes = 64 * MiB, pip = `${upstream.url}/simple`): PackageCache {
  const upstreams = { pip, npm: `${upstream.url}/npm` }
  const cache = new PackageCache(
    { upstreams, allow: [], directory, sizeBytes, reserveBytes: 0 },
    { isOwn: () => true, roots: [] },
  )
  closings.push(() => cache.close())
  return cache
}

interface Got {
  status: number
  text: string
  bytes: Buffer
  /** Whether the answer ended before its end. */
  isBroken: boolean
}

async function get(cache: PackageCache, path: string, method = 'GET', accept = '*/*'): Promise<Got> {
  const gone = new AbortController()
  const pieces: Buffer[] = []
  let isBroken = false
  const { status, body } = await cache.answer(method, path, accept, 'acme', gone.signal)
  try {
    for await (const piece of body) pieces.push(Buffer.from(piece as Uint8Array))
  } catch {
    isBroken = true
  } finally {
    gone.abort()
  }
  const bytes = Buffer.concat(pieces)
  return { status, bytes, text: bytes.toString('utf8'), isBroken }
}

const kept = (): string[] => readdirSync(join(directory, 'kept')).filter((name) => name.startsWith('sha'))

describe('the package cache', () => {
  it('passes on a page with links to itself, and keeps what has the listed checksum', async () => {
    const wheel = randomBytes(300_000)
    const index = await serveIndex({ 'one-1.0.whl': wheel })
    const cache = openCache(index)
    const page = await get(cache, '/pip/One/')
    expect(page.text).toContain(
      `<a href="one-1.0.whl#sha256=${sha256(wheel)}" data-requires-python="&gt;=3.8">one-1.0.whl</a>`,
    )
    expect((await get(cache, '/pip/one/one-1.0.whl')).bytes.equals(wheel)).toBe(true)
    expect(kept()).toEqual([`sha256-${sha256(wheel)}`])
    index.close()
    expect((await get(cache, '/pip/one/one-1.0.whl')).bytes.equals(wheel)).toBe(true)
    expect(index.requests).toEqual(['/simple/one/', '/files/one-1.0.whl'])
  })

  it('serves pages and files without the index, also after a restart', async () => {
    const wheel = randomBytes(100_000)
    const index = await serveIndex({ 'one-1.0.whl': wheel })
    const first = openCache(index)
    await get(first, '/pip/one/one-1.0.whl')
    await first.close()
    index.close()
    const second = openCache(index)
    expect((await get(second, '/pip/one/')).text).toContain('one-1.0.whl')
    expect((await get(second, '/pip/one/one-1.0.whl')).bytes.equals(wheel)).toBe(true)
    expect(await get(second, '/pip/two/')).toMatchObject({
      status: 502,
      text: expect.stringContaining('cannot be reached'),
    })
  })

  it('uses a document that has not changed again, and serves one that has', async () => {
    const asked: (string | undefined)[] = []
    let version = '1.0.0'
    const index = await serveIndex({
      one: (response) => {
        const known = response.req.headers['if-none-match']
        asked.push(known)
        const etag = `"${version}"`
        if (known === etag) return void response.writeHead(304).end()
        const text = JSON.stringify({ name: 'one', 'dist-tags': { latest: version }, versions: {} })
        response.writeHead(200, { etag }).end(text)
      },
    })
    for (const expected of ['1.0.0', '1.0.0', '2.0.0']) {
      version = expected
      const cache = openCache(index)
      for (let n = 0; n < 2; n++) expect((await get(cache, '/npm/one')).text).toContain(`"latest":"${expected}"`)
      await cache.close()
    }
    // Once in each process: the second answer is still fresh.
    expect(asked).toEqual([undefined, '"1.0.0"', '"1.0.0"'])
  })

  it('reads JSON pages with metadata beside the files', async () => {
    const wheel = randomBytes(1000)
    const metadata = Buffer.from('Name: one\n')
    const index = await serveIndex({ 'one-1.0.whl': wheel, 'one-1.0.whl.metadata': metadata }, {}, (base) => [
      'application/vnd.pypi.simple.v1+json',
      JSON.stringify({
        files: [
          {
            filename: 'one-1.0.whl',
            url: `${base}/files/one-1.0.whl`,
            hashes: { sha256: sha256(wheel) },
            'core-metadata': { sha256: sha256(metadata) },
            yanked: 'broken "quote"',
          },
          { filename: '../../evil.whl', url: `${base}/x`, hashes: {} },
        ],
      }),
    ])
    const cache = openCache(index)
    const { text } = await get(cache, '/pip/one/')
    expect(text).toContain(`data-core-metadata="sha256=${sha256(metadata)}"`)
    expect(text).toContain('data-yanked="broken &quot;quote&quot;"')
    expect(text).not.toContain('evil')
    expect((await get(cache, '/pip/one/one-1.0.whl.metadata')).text).toBe('Name: one\n')
    expect(kept()).toEqual([`sha256-${sha256(metadata)}`])
  })

  it('refuses a file with another checksum, and keeps nothing of it', async () => {
    const [small, large] = [randomBytes(1000), randomBytes(MiB)]
    const index = await serveIndex(
      { 'small-1.0.whl': small, 'large-1.0.whl': large },
      { 'small-1.0.whl': 'a'.repeat(64), 'large-1.0.whl': 'b'.repeat(64) },
    )
    const cache = openCache(index)
    expect(await get(cache, '/pip/one/small-1.0.whl')).toMatchObject({
      status: 502,
      text: expect.stringContaining('checksum'),
    })
    const broken = await get(cache, '/pip/one/large-1.0.whl')
    // Some of a large file was sent before all of it was there, but never its end.
    expect(broken.status === 502 || (broken.isBroken && broken.bytes.length < large.length)).toBe(true)
    expect(kept()).toEqual([])
    await expect.poll(() => readdirSync(join(directory, 'unfinished'))).toEqual([])
  })

  it('gives up a file without an end, one that is shorter than announced, and one that is too large', async () => {
    const index = await serveIndex({
      'endless.whl': (response) => {
        const more = () => {
          while (!response.destroyed && response.write(Buffer.alloc(MiB)));
        }
        response.on('drain', more)
        more()
      },
      'short.whl': (response) => {
        response.writeHead(200, { 'content-length': 1000 })
        response.write('short')
        setTimeout(() => response.destroy(), 50)
      },
      'announced.whl': (response) => void response.writeHead(200, { 'content-length': 1e15 }).flushHeaders(),
    })
    const cache = openCache(index)
    const endless = await get(cache, '/pip/one/endless.whl')
    expect(endless.isBroken).toBe(true)
    expect(endless.bytes.length).toBeLessThanOrEqual(16 * MiB)
    expect(await get(cache, '/pip/one/short.whl')).toMatchObject({ status: 502 })
    expect(await get(cache, '/pip/one/announced.whl')).toMatchObject({ status: 507 })
    const pages = cache.totals.usedBytes
    expect(pages).toBeLessThan(10_000)
    expect(kept()).toEqual([])
  })

  it('downloads a file once for many clients, also when one of them leaves', async () => {
    const wheel = randomBytes(2 * MiB)
    let release = () => {}
    const held = new Promise<void>((resolve) => (release = resolve))
    const index = await serveIndex(
      {
        'one-1.0.whl': (response) => {
          response.write(wheel.subarray(0, MiB))
          void held.then(() => response.end(wheel.subarray(MiB)))
        },
      },
      { 'one-1.0.whl': sha256(wheel) },
    )
    const cache = openCache(index)
    const leaving = new AbortController()
    const { body } = await cache.answer('GET', '/pip/one/one-1.0.whl', '', 'other', leaving.signal)
    const all = Array.from({ length: 20 }, () => get(cache, '/pip/one/one-1.0.whl'))
    await sleep(100)
    body.on('error', () => undefined).destroy()
    leaving.abort()
    release()
    for (const { bytes } of await Promise.all(all)) expect(bytes.equals(wheel)).toBe(true)
    expect(index.requests).toEqual(['/simple/one/', '/files/one-1.0.whl'])
  })

  it('ends a download when its last client has left', async () => {
    let isEnded = false
    const index = await serveIndex({
      'one-1.0.whl': (response) => {
        response.write(Buffer.alloc(MiB))
        response.once('close', () => (isEnded = true))
      },
    })
    const cache = openCache(index)
    const gone = new AbortController()
    const { body } = await cache.answer('GET', '/pip/one/one-1.0.whl', '', 'acme', gone.signal)
    body.on('error', () => undefined).destroy()
    gone.abort()
    await expect.poll(() => isEnded, { timeout: 10_000 }).toBe(true)
    await expect.poll(() => readdirSync(join(directory, 'unfinished'))).toEqual([])
  })

  it('removes what was not used for the longest time', async () => {
    const wheels = Object.fromEntries([1, 2, 3, 4, 5].map((n) => [`one-${n}.whl`, randomBytes(15 * MiB)]))
    const index = await serveIndex(wheels)
    const cache = openCache(index)
    for (const n of [1, 2, 3, 4]) await get(cache, `/pip/one/one-${n}.whl`)
    await get(cache, '/pip/one/one-1.whl')
    await get(cache, '/pip/one/one-5.whl')
    expect(kept().sort()).toEqual([1, 3, 4, 5].map((n) => `sha256-${sha256(wheels[`one-${n}.whl`]!)}`).sort())
    expect(cache.totals.usedBytes).toBeLessThanOrEqual(64 * MiB)
    await cache.close()
    // A smaller size holds from the next start on.
    openCache(index, 32 * MiB)
    expect(kept().length).toBe(2)
  })

  it('finds a damaged file when it is read, and downloads it again', async () => {
    const wheel = randomBytes(500_000)
    const index = await serveIndex({ 'one-1.0.whl': wheel })
    const first = openCache(index)
    await get(first, '/pip/one/one-1.0.whl')
    await first.close()
    const path = join(directory, 'kept', kept()[0]!)
    const damage: (() => void)[] = [
      () => writeFileSync(path, Buffer.concat([wheel.subarray(0, 499_999), Buffer.from('!')])),
      () => truncateSync(path, 10),
      () => writeFileSync(path, ''),
    ]
    for (const change of damage) {
      change()
      const cache = openCache(index)
      const { bytes, status } = await get(cache, '/pip/one/one-1.0.whl')
      expect([status, bytes.equals(wheel)]).toEqual([200, true])
      await cache.close()
    }
    for (const name of readdirSync(join(directory, 'kept')).filter((name) => name.startsWith('index-'))) {
      const page = join(directory, 'kept', name)
      const text = readFileSync(page, 'latin1')
      writeFileSync(page, text.replace('one-1.0.whl', 'one-9.9.whl'), 'latin1')
    }
    expect((await get(openCache(index), '/pip/one/')).text).toContain('one-1.0.whl')
    expect(statSync(path).size).toBe(wheel.length)
  })

  it('leads npm to itself, and takes the checksum from the document', async () => {
    const tarball = gzipSync('package')
    const integrity = `sha512-${createHash('sha512').update(tarball).digest('base64')}`
    const files: WheelFiles = { 'one-1.0.0.tgz': tarball }
    const index = await serveIndex(files)
    files['@scope%2fone'] = (response) => {
      const dist = { tarball: `${index.url}/files/one-1.0.0.tgz`, integrity }
      response.setHeader('content-encoding', 'gzip')
      response.end(gzipSync(JSON.stringify({ name: '@scope/one', versions: { '1.0.0': { dist } } })))
    }
    const cache = openCache(index)
    const document = JSON.parse((await get(cache, '/npm/@scope%2fone')).text)
    expect(document.versions['1.0.0'].dist).toEqual({
      integrity,
      tarball: 'http://packages.glovebox.internal/npm/@scope/one/-/one-1.0.0.tgz',
    })
    expect((await get(cache, '/npm/@scope/one/-/one-1.0.0.tgz')).bytes.equals(tarball)).toBe(true)
    expect(kept()).toEqual([`sha512-${createHash('sha512').update(tarball).digest('hex')}`])
  })

  it('gives its login to its own index only, and follows no link inward', async () => {
    const inward = await serveIndex({ 'one-1.0.whl': Buffer.from('internal') })
    const links = [
      `${inward.url}/files/a.whl`,
      'http://169.254.169.254/b.whl',
      'https://localhost/c.whl',
      '/files/d.whl',
    ]
    const index = await serveIndex(
      {
        'd.whl': (response) => void response.writeHead(302, { location: `${inward.url}/files/one-1.0.whl` }).end(),
      },
      {},
      () => ['text/html', links.map((link) => `<a href="${link}#sha256=${'0'.repeat(64)}">x</a>`).join('')],
    )
    const cache = openCache(index, 64 * MiB, `${index.url.replace('http://', 'http://user:token@')}/simple`)
    for (const file of ['a', 'b', 'c', 'd']) {
      expect(await get(cache, `/pip/one/${file}.whl`)).toMatchObject({
        status: 502,
        text: expect.stringMatching(/cannot be reached, or is not public|leads to this machine/),
      })
    }
    expect(inward.requests).toEqual([])
    expect(index.headers[0]).toBe(`Basic ${Buffer.from('user:token').toString('base64')}`)
  })

  it('answers nothing else', async () => {
    const index = await serveIndex({})
    const cache = openCache(index)
    for (const path of [
      '/',
      '/pip/',
      '/pip/one/../../etc',
      '/pip/%2e%2e/',
      '/npm/..%2f..',
      '/npm/-/v1/search',
      '/apt/x',
      '/pip/%ff/',
    ])
      expect([path, (await get(cache, path)).status]).toEqual([path, 404])
    expect((await get(cache, '/pip/one', 'POST')).status).toBe(405)
    expect((await get(cache, '/pip/one')).status).toBe(301)
    expect(index.requests).toEqual([])
  })
})
