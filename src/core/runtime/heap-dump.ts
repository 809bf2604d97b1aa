import { readdirSync, statSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import { join } from 'node:path'
import v8 from 'node:v8'
import { Refusal } from '../../base/errors.ts'

/** A larger heap would block the process for too long: about a second per 100 MiB. */
const heapMaxBytes = 512 * 1024 * 1024
/** Dumps that may be in the directory. Operators delete them. */
const dumpsMax = 5
const suffix = '.heapsnapshot'

/**
 * Writes the heap of this process to a file that only its user can read.
 * @returns the path and the size.
 * @throws Refusal `heap_dump_refused`.
 */
export async function writeHeapDump(directory: string): Promise<{ path: string; bytes: number }> {
  const { total_heap_size: heapBytes } = v8.getHeapStatistics()
  if (heapBytes > heapMaxBytes) throw refused(`the heap has ${heapBytes} bytes, more than ${heapMaxBytes}`)
  const { dumps, freeBytes } = await contentOf(directory)
  if (dumps >= dumpsMax) throw refused(`there are ${dumps} dumps in the directory; delete them first`)
  if (freeBytes < 4 * heapBytes) throw refused('the disk has too little free space')
  const mask = process.umask(0o077)
  try {
    const path = v8.writeHeapSnapshot(join(directory, `front-${Date.now()}${suffix}`))
    return { path, bytes: statSync(path).size }
  } finally {
    process.umask(mask)
  }
}

async function contentOf(directory: string): Promise<{ dumps: number; freeBytes: number }> {
  try {
    const { bavail, bsize } = await statfs(directory)
    return { dumps: readdirSync(directory).filter((name) => name.endsWith(suffix)).length, freeBytes: bavail * bsize }
  } catch (error) {
    throw refused(`the directory cannot be used (${(error as NodeJS.ErrnoException).code})`)
  }
}

const refused = (problem: string): Refusal => new Refusal('heap_dump_refused', { problem })
