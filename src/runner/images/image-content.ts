import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { Refusal } from '../../base/errors.ts'
import type { ImageConfig, ImageProgress } from '../../base/image.ts'
import { parseJson } from '../../base/json.ts'
import { type Blobs, DigestMismatch, digestOf, isDigest } from './blobs.ts'
import { type Descriptor, documentBytesMax, type Manifest, problemsOf, readConfig, readManifest } from './manifest.ts'
import { type Puller, PullFailed } from './puller.ts'

/** An image whose layers are all stored here. */
export interface ImageContent {
  /** Of its manifest. */
  digest: string
  config: ImageConfig
  layers: readonly Descriptor[]
  /** Digests of the layers after decompression, in the same order. */
  diffIds: readonly string[]
}

/** Where the content of an image is read from. */
interface ContentSource {
  document(digest: string): Promise<Buffer>
  blob(digest: string, offset: number): AsyncIterable<Uint8Array>
}

/** What a fetch needs of its image. */
export interface FetchOptions {
  name: string
  blobs: Blobs
  /** Limit on the size of all layers together, as they are downloaded. */
  bytesMax: number
  /** Called with the digests that are needed, before they are stored: a collection keeps them. */
  needs(digests: readonly string[]): void
  progress(progress: ImageProgress): void
  signal: AbortSignal
}

/**
 * Pulls an image from its registry.
 * @param puller the process that reads; closed by the caller.
 * @param version tag or digest.
 * @throws Refusal registry_failed, image_invalid, image_too_large, and the reason of the signal.
 */
export async function pullContent(
  puller: Puller,
  { registry, version }: { registry: string; version: string },
  options: FetchOptions,
): Promise<ImageContent> {
  const stop = () => puller.close()
  options.signal.addEventListener('abort', stop, { once: true })
  try {
    options.signal.throwIfAborted()
    options.progress({ step: 'resolving', detail: options.name, done: 0, total: 0 })
    const source: ContentSource = {
      document: (digest) => puller.document(digest, documentBytesMax),
      blob: (digest, offset) => puller.blob(digest, offset),
    }
    const manifestOf = (digest: string) => puller.manifest(digest, documentBytesMax)
    const root = await manifestOf(version)
    if (isDigest(version)) requireDigest(root, version)
    return await fetchContent(root, manifestOf, source, options)
  } catch (error) {
    options.signal.throwIfAborted()
    if (error instanceof PullFailed || error instanceof DigestMismatch)
      throw new Refusal('registry_failed', { registry, image: options.name, problem: error.message })
    throw error
  } finally {
    options.signal.removeEventListener('abort', stop)
  }
}

/**
 * Copies an image from an OCI layout: https://github.com/opencontainers/image-spec/blob/main/image-layout.md
 * @throws Refusal image_invalid, image_too_large.
 */
export async function copyLayout(directory: string, options: FetchOptions): Promise<ImageContent> {
  const invalid = problemsOf(options.name)
  const pathOf = (digest: string) => join(directory, 'blobs/sha256', digest.slice('sha256:'.length))
  const document = (digest: string) => readSmall(pathOf(digest)).catch(() => missing(digest))
  const missing = (digest: string): never => {
    throw invalid(`the layout has no readable ${digest}`)
  }
  const index = await readSmall(join(directory, 'index.json')).catch(() => {
    throw invalid('the layout has no readable index.json')
  })
  try {
    return await fetchContent(index, document, { document, blob: (digest) => readRegular(pathOf(digest)) }, options)
  } catch (error) {
    if (error instanceof DigestMismatch) throw invalid(error.message)
    throw error
  }
}

async function fetchContent(
  root: Buffer,
  manifestOf: (digest: string) => Promise<Buffer>,
  source: ContentSource,
  options: FetchOptions,
): Promise<ImageContent> {
  const invalid = problemsOf(options.name)
  const { digest, manifest } = await resolve(root, manifestOf, options)
  const { config: described, layers } = manifest
  if (described.size > documentBytesMax) throw invalid('its configuration is too large')
  const bytes = await source.document(described.digest)
  requireDigest(bytes, described.digest)
  const { config, diffIds } = readConfig(bytes, invalid)
  if (diffIds.length !== layers.length) throw invalid('its configuration is for another number of layers')
  await fetchLayers(layers, source, options)
  return { digest, config, layers, diffIds }
}

/** An index may refer to another index, but not endlessly. */
const indexDepthMax = 4

async function resolve(
  root: Buffer,
  manifestOf: (digest: string) => Promise<Buffer>,
  { name }: FetchOptions,
): Promise<{ digest: string; manifest: Manifest }> {
  const invalid = problemsOf(name)
  let bytes = root
  for (let depth = 0; depth <= indexDepthMax; depth++) {
    const read = readManifest(bytes, invalid)
    if ('layers' in read) return { digest: digestOf(bytes), manifest: read }
    bytes = await manifestOf(read.digest)
    requireDigest(bytes, read.digest)
  }
  throw invalid('its indexes refer to each other')
}

async function fetchLayers(layers: readonly Descriptor[], source: ContentSource, options: FetchOptions): Promise<void> {
  const { name, blobs, bytesMax, progress, signal } = options
  const total = layers.reduce((sum, { size }) => sum + size, 0)
  if (total > bytesMax) throw new Refusal('image_too_large', { image: name, setting: 'image_size', limit: bytesMax })
  options.needs(layers.map(({ digest }) => digest))
  let done = 0
  for (const { digest, size } of layers) {
    signal.throwIfAborted()
    const before = done
    const report = (bytes: number) => progress({ step: 'pulling', detail: digest, done: before + bytes, total })
    if (!(await blobs.has(digest))) await blobs.store(digest, size, (offset) => source.blob(digest, offset), report)
    done += size
    report(size)
  }
}

/** @throws DigestMismatch. */
function requireDigest(bytes: Buffer, digest: string): void {
  const found = digestOf(bytes)
  if (found !== digest) throw new DigestMismatch(digest, found)
}

const readFlags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK

async function readSmall(path: string): Promise<Buffer> {
  await using file = await open(path, readFlags)
  const { size } = await file.stat()
  if (size > documentBytesMax) throw new Error(`${path} is too large`)
  return await file.readFile()
}

async function* readRegular(path: string): AsyncGenerator<Buffer, void, undefined> {
  await using file = await open(path, readFlags)
  if (!(await file.stat()).isFile()) throw new Error(`${path} is not a regular file`)
  for await (const piece of file.createReadStream({ autoClose: false, highWaterMark: 256 * 1024 }))
    yield piece as Buffer
}

/** Whether a directory is an OCI layout. */
export async function isLayout(directory: string): Promise<boolean> {
  try {
    const { imageLayoutVersion } = parseJson(await readSmall(join(directory, 'oci-layout'))) as Record<string, unknown>
    return typeof imageLayoutVersion === 'string'
  } catch {
    return false
  }
}
