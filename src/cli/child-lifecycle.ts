import { closeSync, writeSync } from 'node:fs'
import type { ProcessIo } from './process-io.ts'

/** Signals the supervisor that this process is ready. */
export function announceReady(): void {
  writeSync(3, '.')
  closeSync(3)
}

/** Waits until this process is stopped or the supervisor is gone. @returns which of the two. */
export function ended(io: ProcessIo): Promise<'stopped' | 'supervisor gone'> {
  return new Promise((resolve) => {
    if (io.stop.aborted) resolve('stopped')
    io.stop.addEventListener('abort', () => resolve('stopped'))
    io.stdin.on('end', () => resolve('supervisor gone'))
    io.stdin.on('error', () => resolve('supervisor gone'))
    io.stdin.resume()
  })
}
