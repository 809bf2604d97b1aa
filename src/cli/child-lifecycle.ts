import { closeSync, writeSync } from 'node:fs'
import type { Io } from './process-io.ts'

/** Tells the supervisor that this process does its work from now on. */
export function announceReady(): void {
  writeSync(3, '.')
  closeSync(3)
}

/** Waits until this process is told to end, or the supervisor is gone. @returns which. */
export function ended(io: Io): Promise<'asked' | 'supervisor gone'> {
  return new Promise((resolve) => {
    if (io.stop.aborted) resolve('asked')
    io.stop.addEventListener('abort', () => resolve('asked'))
    io.stdin.on('end', () => resolve('supervisor gone'))
    io.stdin.on('error', () => resolve('supervisor gone'))
    io.stdin.resume()
  })
}
