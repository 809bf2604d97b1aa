import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { mebibytes, shown, table } from './figures.ts'
import { GloveboxServer } from './glovebox-server.ts'
import { memoryOf } from './process-figures.ts'
import { download, linkTo, pattern, upload } from './signed-link.ts'

export interface LargeFile {
  bytes: number
  uploadMs: number
  downloadMs: number
  /** Peak memory of each process, before and during. */
  front: [beforeBytes: number, peakBytes: number]
  runner: [beforeBytes: number, peakBytes: number]
}

/** A twenty-fourth of the file: chunks that V8 has not collected yet take up to 70 MiB, whatever its size. */
const growthMaxBytes = 128 * 2 ** 20
const sampleEveryMs = 100

/**
 * Uploads and downloads one file that is larger than the memory limit, and compares the bytes.
 * @throws Error when they differ, or when a process grows with the file.
 */
export async function measureLargeFile(bytes: number): Promise<LargeFile> {
  const server = await GloveboxServer.start(['--limit-thread', `${Math.ceil(bytes / 2 ** 20) + 512}MiB`])
  try {
    const { front, runner } = server.parts()
    // Once before, so that one-time allocations do not count.
    await upload(await linkTo(server, 'upload', { id: 'large', path: 'first', size: 2 ** 24 }), 2 ** 24)
    await download(await linkTo(server, 'download', { id: 'large', path: 'first' }))
    const before = [memoryOf(front).rssBytes, memoryOf(runner).rssBytes] as const
    const peak: [number, number] = [...before]
    let done = false
    const sampling = (async () => {
      for (; !done; await sleep(sampleEveryMs)) {
        peak[0] = Math.max(peak[0], memoryOf(front).rssBytes)
        peak[1] = Math.max(peak[1], memoryOf(runner).rssBytes)
      }
    })()
    const uploadMs = await upload(await linkTo(server, 'upload', { id: 'large', path: 'file', size: bytes }), bytes)
    const came = await download(await linkTo(server, 'download', { id: 'large', path: 'file' }), { hashed: true })
    done = true
    await sampling
    const expected = createHash('sha256')
    for (const piece of pattern(bytes)) expected.update(piece)
    if (came.bytes !== bytes || came.sha256 !== expected.digest('hex')) throw new Error('other bytes came back')
    const result: LargeFile = {
      bytes,
      uploadMs,
      downloadMs: came.ms,
      front: [before[0], peak[0]],
      runner: [before[1], peak[1]],
    }
    for (const part of ['front', 'runner'] as const) {
      const [start, most] = result[part]
      if (most - start > growthMaxBytes) throw new Error(`the ${part} grew by ${mebibytes(most - start)} MiB`)
    }
    return result
  } finally {
    await server.stop()
  }
}

export function largeFilePart({ bytes, uploadMs, downloadMs, front, runner }: LargeFile): string {
  const rate = (ms: number) => `${shown(bytes / 1e3 / ms)} MB/s`
  return [
    '## One large file',
    '',
    `${shown(bytes / 2 ** 30)} GiB up (${rate(uploadMs)}) and down (${rate(downloadMs)}, hashed by the client).`,
    '',
    table(
      ['memory, MiB', 'before', 'most'],
      [
        ['front', ...front.map(mebibytes)],
        ['runner', ...runner.map(mebibytes)],
      ],
    ),
  ].join('\n')
}
