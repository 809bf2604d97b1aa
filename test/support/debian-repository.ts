/** A signed archive of small Debian packages on loopback, with its lists by hash, as `dists` and `pool`. */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'

export interface DebianRepository {
  url: string
  /** Of its signatures, in the form that sources name. */
  key: Buffer
  /** By path. A test may change them. */
  files: Map<string, Buffer>
  /** Paths that were requested. */
  requests: string[]
  close(): void
}

export const listPath = 'dists/stable/main/binary-all/Packages'
export const debPath = (name: string): string => `pool/main/${name[0]}/${name}/${name}_1.0+1~a_all.deb`

/** Starts an archive with a package of each name; `unlisted` is in no list. */
export async function openDebianRepository(names: readonly string[], unlisted = 'unlisted'): Promise<DebianRepository> {
  const directory = mkdtempSync(join(tmpdir(), 'glovebox-archive-'))
  const files = new Map<string, Buffer>()
  let key: Buffer
  try {
    for (const name of [...names, unlisted]) files.set(debPath(name), debOf(directory, name))
    const list = Buffer.from(names.map((name) => `${entry(name, files.get(debPath(name))!)}\n`).join(''))
    const lists = [
      [listPath, list],
      [`${listPath}.gz`, gzipSync(list)],
      [`${listPath}.xz`, execFileSync('xz', ['-c'], { input: list })],
    ] as const
    const sums = lists.map(([path, bytes]) => ` ${hexOf(bytes)} ${bytes.length} ${path.slice('dists/stable/'.length)}`)
    for (const [path, bytes] of lists) {
      files.set(path, bytes)
      files.set(path.replace(/[^/]+$/, `by-hash/SHA256/${hexOf(bytes)}`), bytes)
    }
    const date = new Date().toUTCString()
    const head = `Suite: stable\nCodename: stable\nDate: ${date}\nArchitectures: all amd64 arm64\nComponents: main\nAcquire-By-Hash: yes`
    const release = Buffer.from(`${head}\nSHA256:\n${sums.join('\n')}\n`)
    files.set('dists/stable/Release', release)
    const signed = sign(directory, release)
    files.set('dists/stable/InRelease', signed.release)
    key = signed.key
  } finally {
    rmSync(directory, { recursive: true })
  }
  const requests: string[] = []
  const server = createServer((request, response) => {
    const path = decodeURIComponent(request.url ?? '').slice('/debian/'.length)
    requests.push(path)
    const file = files.get(path)
    const etag = file && `"${hexOf(file)}"`
    if (file === undefined) response.writeHead(404).end()
    else if (request.headers['if-none-match'] === etag) response.writeHead(304).end()
    else response.writeHead(200, { etag }).end(file)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = () => {
    server.close()
    server.closeAllConnections()
  }
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/debian`
  return { url, key, files, requests, close }
}

const hexOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

const control = (name: string) =>
  `Package: ${name}\nVersion: 1.0+1~a\nArchitecture: all\nMaintainer: A <a@example.com>\nDescription: a test\n`

const entry = (name: string, deb: Buffer) =>
  `${control(name)}Filename: ${debPath(name)}\nSize: ${deb.length}\nSHA256: ${hexOf(deb)}\n`

/** A package with a program that prints its name, and 300 KB. */
function debOf(directory: string, name: string): Buffer {
  const root = join(directory, name)
  mkdirSync(join(root, 'DEBIAN'), { recursive: true })
  mkdirSync(join(root, 'usr/share', name), { recursive: true })
  writeFileSync(join(root, 'DEBIAN/control'), control(name))
  writeFileSync(join(root, 'usr/share', name, 'text'), `hello from ${name}\n${'x'.repeat(300_000)}`)
  execFileSync('dpkg-deb', ['-Znone', '--root-owner-group', '--build', root, `${root}.deb`])
  return readFileSync(`${root}.deb`)
}

function sign(directory: string, release: Buffer): { release: Buffer; key: Buffer } {
  const home = join(directory, 'gpg')
  mkdirSync(home, { mode: 0o700 })
  const gpg = (args: readonly string[], input?: Buffer) => {
    const all = ['--homedir', home, '--batch', '--quiet', '--passphrase', '', '--pinentry-mode', 'loopback', ...args]
    return execFileSync('gpg', all, { stdio: ['pipe', 'pipe', 'pipe'], ...(input && { input }) })
  }
  try {
    gpg(['--quick-gen-key', 'Archive <archive@example.com>', 'rsa2048', 'sign', 'never'])
    return { release: gpg(['--clearsign'], release), key: gpg(['--export']) }
  } finally {
    execFileSync('gpgconf', ['--homedir', home, '--kill', 'all'])
  }
}
