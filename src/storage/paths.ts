import { Refusal } from '../base/errors.ts'

/** A path below the root of a filesystem: its components as bytes; none for the root itself. */
export type Path = readonly Buffer[]

const pathMaxBytes = 65_536
/** More than code in a sandbox makes by accident; each one is a step of work. */
const depthMax = 16_384
/** For directories that we make ourselves. */
export const madeDepthMax = 256
/** NAME_MAX of ext4. */
const nameMaxBytes = 255

const invalid = (problem: string) => new Refusal('path_invalid', { problem })

/**
 * BOUNDARY: takes a path from outside. Any Unicode; relative; `.` components say nothing and are dropped.
 * @param limitDepth how many components are accepted.
 * @throws Refusal path_invalid, path_too_deep.
 */
export function parsePath(text: string, limitDepth = depthMax): Path {
  if (!text.isWellFormed()) throw invalid('is not valid Unicode')
  if (text.includes('\0')) throw invalid('contains a NUL character')
  if (text.startsWith('/')) throw invalid('is absolute')
  if (Buffer.byteLength(text) > pathMaxBytes) throw invalid(`is longer than ${pathMaxBytes} bytes`)
  if (text === '') return []
  const names = text.split('/')
  const depth = names.length
  if (depth > limitDepth) throw new Refusal('path_too_deep', { depth, limitDepth })
  return names.filter((name) => name !== '.').map(toComponent)
}

function toComponent(name: string): Buffer {
  if (name === '') throw invalid('has an empty component')
  if (name === '..') throw invalid('goes up with ".."')
  const bytes = Buffer.from(name)
  if (bytes.length > nameMaxBytes) throw invalid(`has a component longer than ${nameMaxBytes} bytes`)
  return bytes
}

/** For messages. */
export const textOf = (path: Path): string =>
  Buffer.concat(path.flatMap((name) => [separator, name]).slice(1)).toString()

const separator = Buffer.of(0x2f) // "/"

/** Joins components into pieces that one system call takes. */
export function piecesOf(path: Path): Buffer[] {
  const pieces: Buffer[] = []
  let piece: Buffer[] = []
  let bytes = 0
  for (const name of path) {
    if (bytes + name.length + 1 > pieceMaxBytes) {
      pieces.push(Buffer.concat(piece))
      piece = []
      bytes = 0
    }
    if (piece.length > 0) piece.push(separator)
    piece.push(name)
    bytes += name.length + 1
  }
  if (piece.length > 0) pieces.push(Buffer.concat(piece))
  return pieces
}

/** Below PATH_MAX (4096), the NUL included. */
const pieceMaxBytes = 4_000
