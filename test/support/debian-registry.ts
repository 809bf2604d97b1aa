/** The registry of Debian (docker-registry), as a process on loopback, and a client that pushes to it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { unpackDebian } from './debian-packages.ts'
import { digestOf, type Layer } from './test-registry.ts'

export interface DebianRegistry {
  /** Host and port, the first part of names. */
  host: string
  /** Pushes an image of layers as the repository `own`. @returns its digest. */
  push(tag: string, layers: readonly Layer[], config: object): Promise<string>
  close(): Promise<void>
}

/** @returns `undefined` where the package cannot be had. */
export async function openDebianRegistry(): Promise<DebianRegistry | undefined> {
  const directory = await unpackDebian('docker-registry')
  if (directory === undefined) return undefined
  const data = mkdtempSync(join(tmpdir(), 'glovebox-registry-'))
  const settings = join(data, 'config.yml')
  writeFileSync(
    settings,
    `version: 0.1\nlog: {level: info}\nstorage: {filesystem: {rootdirectory: ${data}}}\nhttp: {addr: '127.0.0.1:0'}\n`,
  )
  const child = spawn(join(directory, 'usr/bin/docker-registry'), ['serve', settings], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const host = await addressOf(child)
  return {
    host,
    push: (tag, layers, config) => push(`http://${host}/v2/own`, tag, layers, config),
    async close() {
      const ended = once(child, 'exit')
      child.kill('SIGTERM')
      await ended
      rmSync(data, { recursive: true, force: true })
    },
  }
}

async function addressOf(child: ChildProcess): Promise<string> {
  for await (const line of createInterface({ input: child.stderr! })) {
    const address = /listening on (127\.0\.0\.1:\d+)/.exec(line)?.[1]
    if (address === undefined) continue
    child.stderr!.resume()
    return address
  }
  throw new Error('docker-registry did not start')
}

const oci = (kind: string) => `application/vnd.oci.image.${kind}`

/** https://github.com/opencontainers/distribution-spec/blob/main/spec.md#push */
async function push(repository: string, tag: string, layers: readonly Layer[], config: object): Promise<string> {
  const blob = async (bytes: Buffer) => {
    const begun = await fetch(`${repository}/blobs/uploads/`, { method: 'POST' })
    const url = new URL(begun.headers.get('location')!, repository)
    url.searchParams.set('digest', digestOf(bytes))
    await accepted(fetch(url, { method: 'PUT', body: new Uint8Array(bytes) }))
    return { digest: digestOf(bytes), size: bytes.length }
  }
  const rootfs = { type: 'layers', diff_ids: layers.map(({ plain }) => digestOf(plain)) }
  const about = { os: 'linux', architecture: process.arch === 'x64' ? 'amd64' : process.arch, rootfs, config }
  const described = { mediaType: oci('config.v1+json'), ...(await blob(Buffer.from(JSON.stringify(about)))) }
  const stored: object[] = []
  for (const { bytes } of layers) stored.push({ mediaType: oci('layer.v1.tar+gzip'), ...(await blob(bytes)) })
  const mediaType = oci('manifest.v1+json')
  const manifest = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, config: described, layers: stored }))
  const headers = { 'content-type': mediaType }
  await accepted(fetch(`${repository}/manifests/${tag}`, { method: 'PUT', headers, body: new Uint8Array(manifest) }))
  return digestOf(manifest)
}

async function accepted(answer: Promise<Response>): Promise<void> {
  const { status } = await answer
  if (status !== 201) throw new Error(`docker-registry answered ${status}`)
}
