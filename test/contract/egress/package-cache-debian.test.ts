/** The package cache for a Debian archive that behaves, changes and lies. */
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { checksumIn, readDebianIndex } from '../../../src/egress/packages/debian-index.ts'
import { PackageCache } from '../../../src/egress/packages/package-cache.ts'
import { type DebianRepository, debPath, listPath, openDebianRepository } from '../../support/debian-repository.ts'

let archive: DebianRepository
let original: Map<string, Buffer>
let directory: string
let cache: PackageCache

beforeEach(async () => {
  archive = await openDebianRepository(['one', 'two'])
  original = new Map(archive.files)
  directory = mkdtempSync(join(tmpdir(), 'glovebox-packages-'))
  cache = openCache()
})
afterEach(async () => {
  await cache.close()
  archive.close()
  rmSync(directory, { recursive: true })
})

function openCache(): PackageCache {
  const settings = { allow: [], directory, sizeBytes: 64 * 1024 * 1024, reserveBytes: 0 }
  return new PackageCache({ ...settings, upstreams: { apt: archive.url } }, { isOwn: () => true, roots: [] })
}

/** Requests a path. @returns the content, undefined when it broke off, or the status of an error. */
async function get(path: string, orgId = 'acme'): Promise<Buffer | number | undefined> {
  const gone = new AbortController()
  const { status, body } = await cache.answer('GET', `/apt/${path}`, '*/*', orgId, gone.signal)
  try {
    const pieces: Buffer[] = []
    for await (const piece of body) pieces.push(Buffer.from(piece as Uint8Array))
    return status === 200 ? Buffer.concat(pieces) : status
  } catch {
    return undefined
  } finally {
    gone.abort()
  }
}

const hexOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')
const listed = (): Buffer => original.get(`${listPath}.xz`)!
const byHash = (): string => listPath.replace(/Packages$/, `by-hash/SHA256/${hexOf(listed())}`)
const kept = (): string[] => readdirSync(join(directory, 'kept')).filter((name) => name.startsWith('sha'))

describe('the package cache for a Debian archive', () => {
  it('passes on signed documents unchanged, and keeps files by hash and those that a list names', async () => {
    expect(await get('dists/stable/InRelease')).toEqual(original.get('dists/stable/InRelease'))
    expect(await get(byHash())).toEqual(listed())
    expect(await get(debPath('one').replace('+', '%2b'))).toEqual(original.get(debPath('one')))
    const keys = [listed(), original.get(debPath('one'))!].map((bytes) => `sha256-${hexOf(bytes)}`)
    expect(kept().sort()).toEqual(keys.sort())
    archive.requests.length = 0
    // Another organization has its own lists, and the same files.
    for (const path of ['dists/stable/InRelease', byHash(), debPath('one')]) {
      const expected = path === byHash() ? listed() : original.get(path)
      expect(await get(path, 'other')).toEqual(expected)
    }
    expect(archive.requests).toEqual([])
  })

  it('serves what it has after a restart, without the archive', async () => {
    for (const path of ['dists/stable/InRelease', byHash(), debPath('one')]) await get(path)
    await cache.close()
    cache = openCache()
    archive.close()
    for (const path of ['dists/stable/InRelease', byHash(), debPath('one')])
      expect(await get(path)).toEqual(path === byHash() ? listed() : original.get(path))
    expect(await get(debPath('two'))).toBe(502)
  })

  it('refuses a file with another content than the list gives, and keeps nothing of it', async () => {
    await get(byHash())
    const changed = Buffer.from(original.get(debPath('one'))!)
    changed[changed.length - 1]! ^= 1
    archive.files.set(debPath('one'), changed)
    expect(await get(debPath('one'))).toBeUndefined()
    archive.files.set(debPath('two'), Buffer.from('short'))
    expect(await get(debPath('two'))).toBe(502)
    expect(kept()).toEqual([`sha256-${hexOf(listed())}`])
    archive.files.set(debPath('one'), original.get(debPath('one'))!)
    expect(await get(debPath('one'))).toEqual(original.get(debPath('one')))
  })

  it('refuses a file by hash with another content', async () => {
    archive.files.set(byHash(), Buffer.from('another list'))
    expect(await get(byHash())).toBe(502)
    expect(kept()).toEqual([])
  })

  it('passes on, and does not keep, a file that no requested list names', async () => {
    expect(await get(debPath('one'))).toEqual(original.get(debPath('one')))
    expect(kept()).toEqual([])
    await get(listPath)
    for (let time = 1; time <= 2; time++)
      expect(await get(debPath('unlisted'))).toEqual(original.get(debPath('unlisted')))
    expect(archive.requests.filter((path) => path === debPath('unlisted')).length).toBe(2)
    expect(kept()).toEqual([])
  })

  it('reads a list without compression where there is no other', async () => {
    archive.files.delete(`${listPath}.gz`)
    await get(listPath)
    await get(debPath('one'))
    expect(kept()).toEqual([`sha256-${hexOf(original.get(debPath('one'))!)}`])
  })

  it('passes on files beside a list that cannot be read', async () => {
    archive.files.set(`${listPath}.gz`, Buffer.from('not compressed'))
    archive.files.delete(listPath)
    await get(byHash())
    for (let time = 1; time <= 2; time++) expect(await get(debPath('one'))).toEqual(original.get(debPath('one')))
    expect(archive.requests.filter((path) => path === `${listPath}.gz`).length).toBe(1)
  })

  it('answers nothing outside of the archive', async () => {
    for (const path of [
      '',
      'dists',
      'pool',
      'project/trace/x',
      'pool/../x',
      'pool/%2e%2e/x',
      'pool/a%2f..%2fx',
      'dists//x',
      `${'pool/'.repeat(17)}x`,
      'dists/stable/by-hash/SHA256/0/x',
    ])
      expect([path, await get(path)]).toEqual([path, 404])
    expect(archive.requests).toEqual([])
  })
})

describe('a list of a Debian archive', () => {
  it('gives the SHA-256 of packages and sources', () => {
    const [a, b, c] = ['a', 'b', 'c'].map((name) => hexOf(Buffer.from(name)))
    const index = readDebianIndex(`Package: one
Filename: pool/one.deb
SHA256: ${a}

Package: weak
Filename: pool/weak.deb
MD5sum: d41d8cd98f00b204e9800998ecf8427e

Package: source
Directory: pool/s
Files:
 d41d8cd98f00b204e9800998ecf8427e 1 s.dsc
Checksums-Sha256:
 ${b} 1 s.dsc
 ${c} 22 s.tar.xz
Homepage: https://a.example
`)
    const hex = (path: string) => checksumIn(index, path)?.hex
    expect([hex('pool/one.deb'), hex('pool/s/s.dsc'), hex('pool/s/s.tar.xz')]).toEqual([a, b, c])
    expect([hex('pool/weak.deb'), hex('pool/s/s.tar'), hex('')]).toEqual([undefined, undefined, undefined])
    expect(checksumIn(readDebianIndex(''), 'pool/one.deb')).toBeUndefined()
  })

  it('is refused with more files than the cache accepts', () => {
    const entry = `Filename: a\nSHA256: ${'0'.repeat(64)}\n\n`
    expect(() => readDebianIndex(entry.repeat(262_145))).toThrow(/too many files/)
  })
})
