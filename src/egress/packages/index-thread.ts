/** A thread that reads documents of indexes: a large one takes longer than connections of the broker may wait. */
import { parentPort } from 'node:worker_threads'
import { gunzipSync } from 'node:zlib'
import type { CachedManager } from '../../base/package-cache.ts'
import { type ReadIndex, readNpmIndex, readPipIndex } from './index-document.ts'

/** Longest document of an index after decompression: longer than those of the largest packages. */
export const documentMaxBytes = 32 * 1024 * 1024

export interface IndexQuestion {
  manager: CachedManager
  /** Of the package. */
  name: string
  url: string
  isJson: boolean
  isGzip: boolean
  bytes: Uint8Array
}

export type IndexAnswer = { index: ReadIndex } | { problem: string }

parentPort?.on('message', ({ manager, name, url, isJson, isGzip, bytes }: IndexQuestion) => {
  try {
    const plain = isGzip ? gunzipSync(bytes, { maxOutputLength: documentMaxBytes }) : Buffer.from(bytes)
    const text = plain.toString('utf8')
    const { body, files } = manager === 'pip' ? readPipIndex(text, isJson, url) : readNpmIndex(text, name, url)
    const index = { body: new TextEncoder().encode(body), files }
    parentPort?.postMessage({ index } satisfies IndexAnswer, [index.body.buffer])
  } catch (error) {
    parentPort?.postMessage({ problem: (error as Error).message } satisfies IndexAnswer)
  }
})
