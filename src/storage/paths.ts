import { Refusal } from '../base/errors.ts'

/** A path below the root of a filesystem: its components as bytes; none for the root itself. */
export type Path = readonly Buffer[]

const pathMaxBytes = 65_536
/** Maximum number of components; more than programs create by accident. Each one costs system calls. */
const depthMax = 16_384
/** Maximum number of components of directories that the product creates. */
export const madeDepthMax = 256
/** NAME_MAX of ext4. */
const nameMaxBytes = 255

const invalid = (problem: string) => new Refusal('path_invalid', { problem })

/**
 * BOUNDARY: parses a path from a client. It is relative and can contain any Unicode; `.` components are dropped.
 * @param limitDepth maximum number of components.
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

/** Formats a path for messages. */
export const textOf = (path: Path): string =>
  Buffer.concat(path.flatMap((name) => [separator, name]).slice(1)).toString()

const separator = Buffer.of(0x2f) // "/"

/** Joins components to paths that fit into one system call. */
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

/** Less than PATH_MAX (4096), which includes the NUL. */
const pieceMaxBytes = 4_000
