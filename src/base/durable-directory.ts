import { closeSync, fsyncSync, mkdirSync, openSync } from 'node:fs'
import { dirname } from 'node:path'

/** Creates a directory with its parents, so that a power cut does not remove it again. */
export function makeDirectoryDurably(path: string, mode: number): void {
  const first = mkdirSync(path, { recursive: true, mode })
  if (first === undefined) return
  for (let at = path; at.length >= first.length; at = dirname(at)) syncDirectory(dirname(at))
}

/** Syncs a directory, so that created, renamed and removed entries survive a power cut. */
export function syncDirectory(path: string): void {
  const directory = openSync(path, 'r')
  try {
    fsyncSync(directory)
  } finally {
    closeSync(directory)
  }
}
