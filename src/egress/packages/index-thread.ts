/** A thread that reads documents of indexes: a large one takes longer than connections of the broker may wait. */
import { parentPort } from 'node:worker_threads'
import { gunzipSync } from 'node:zlib'
import type { CachedManager } from '../../base/package-cache.ts'
import { readDebianIndex } from './debian-index.ts'
import { type ReadIndex, readNpmIndex, readPipIndex } from './index-document.ts'

/** Longest document of an index after decompression: longer than those of the largest packages. */
export const documentMaxBytes = 32 * 1024 * 1024
/** Of a list of a Debian archive: those of Debian have about 50 MiB. */
const listMaxBytes = 128 * 1024 * 1024

export interface IndexQuestion {
  manager: CachedManager
  /** Of the package; of Debian, the path of the list. */
  name: string
  url: string
  isJson: boolean
  isGzip: boolean
  bytes: Uint8Array
}

export type IndexAnswer = { index: ReadIndex } | { problem: string }

parentPort?.on('message', ({ manager, name, url, isJson, isGzip, bytes }: IndexQuestion) => {
  const page = (text: string): ReadIndex => {
    const { body, files } = manager === 'pip' ? readPipIndex(text, isJson, url) : readNpmIndex(text, name, url)
    return { body: new TextEncoder().encode(body), files }
  }
  try {
    const maxOutputLength = manager === 'apt' ? listMaxBytes : documentMaxBytes
    const plain = isGzip ? gunzipSync(bytes, { maxOutputLength }) : Buffer.from(bytes)
    const index = manager === 'apt' ? readDebianIndex(plain.toString('latin1')) : page(plain.toString('utf8'))
    parentPort?.postMessage({ index } satisfies IndexAnswer, [index.body.buffer as ArrayBuffer])
  } catch (error) {
    parentPort?.postMessage({ problem: (error as Error).message } satisfies IndexAnswer)
  }
})
