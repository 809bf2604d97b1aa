/** Files that the product generates for the roots of slots: readable for everyone, whatever the umask of this process. */
import { chmodSync, copyFileSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { StartRefused } from '../../base/errors.ts'

/** Copies a program of the product. @throws StartRefused if it was not built. */
export function copyProgram(from: string, to: string): void {
  makeDir(dirname(to))
  try {
    copyFileSync(from, to)
  } catch (error) {
    throw new StartRefused(`${from} cannot be read: ${(error as Error).message}.`, 'Build it: sh guest/build.sh build.')
  }
  chmodSync(to, 0o755)
}

// Sets the modes explicitly, since the umask of this process can clear bits.
export function makeDir(path: string): void {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return
  if (dirname(path) !== path) makeDir(dirname(path))
  mkdirSync(path)
  chmodSync(path, 0o755)
}

export function putFile(path: string, content: string | Buffer): void {
  makeDir(dirname(path))
  writeFileSync(path, content)
  chmodSync(path, 0o644)
}

export function link(path: string, target: string): void {
  makeDir(dirname(path))
  symlinkSync(target, path)
}
