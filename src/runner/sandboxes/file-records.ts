import type { FileChange, SandboxFile } from '../../base/sandbox.ts'

const kinds = new Map<number, SandboxFile['kind']>([
  [0x66, 'file'],
  [0x64, 'directory'],
  [0x6c, 'link'],
  [0x70, 'fifo'],
  [0x73, 'socket'],
  [0x76, 'device'],
])

const changeKinds = new Map<number, FileChange['kind']>([
  [0x63, 'created'],
  [0x6d, 'changed'],
  [0x64, 'deleted'],
  [0x66, 'moved_from'],
  [0x74, 'moved_to'],
])

const fixedBytes = 31
/** A name of 255 bytes and the target of a link, or a path. */
const recordMaxBytes = 8_192

/** A sandbox sent what no builtin sends: only its own caller is concerned. */
export class BadRecord extends Error {
  constructor() {
    super('a record of a file operation is malformed')
    this.name = 'BadRecord'
  }
}

/** BOUNDARY: collects bytes that a sandbox controls and cuts them into records: u32 length, value. */
export class RecordReader {
  #bytes = Buffer.alloc(0)

  push(bytes: Uint8Array): void {
    this.#bytes = Buffer.concat([this.#bytes, bytes])
  }

  /** @returns the next whole record; `undefined` until it has arrived. @throws BadRecord. */
  next(): Buffer | undefined {
    if (this.#bytes.length < 4) return undefined
    const length = this.#bytes.readUInt32LE(0)
    if (length > recordMaxBytes || length === 0) throw new BadRecord()
    if (this.#bytes.length < 4 + length) return undefined
    const record = this.#bytes.subarray(4, 4 + length)
    this.#bytes = this.#bytes.subarray(4 + length)
    return record
  }

  /** What has arrived after the last record. */
  rest(): Buffer {
    const rest = this.#bytes
    this.#bytes = Buffer.alloc(0)
    return rest
  }
}

/** @param directory path of what contains it; absent: `path` is its own. @throws BadRecord. */
export function toFile(record: Buffer, place: { path: string } | { directory: string }): SandboxFile {
  const kind = kinds.get(record[0] ?? 0)
  if (record.length < fixedBytes || kind === undefined) throw new BadRecord()
  const nameBytes = record.readUInt16LE(29)
  const name = record.toString('utf8', fixedBytes, fixedBytes + nameBytes)
  const target = record.toString('utf8', fixedBytes + nameBytes)
  return {
    name,
    path: 'path' in place ? place.path : below(place.directory, name),
    kind,
    mode: record.readUInt32LE(1) & 0o7777,
    uid: record.readUInt32LE(5),
    gid: record.readUInt32LE(9),
    sizeBytes: Number(record.readBigUInt64LE(13)),
    modifiedMs: Number(record.readBigUInt64LE(21)),
    ...(kind === 'link' && { target }),
  }
}

const below = (directory: string, name: string): string =>
  directory === '.' ? name : `${directory.replace(/\/$/, '')}/${name}`

/** @returns `undefined` for the record that says that everything is watched. @throws BadRecord. */
export function toChange(record: Buffer): FileChange | undefined {
  if (record[0] === 0x72) return undefined
  const kind = changeKinds.get(record[0] ?? 0)
  if (kind === undefined) throw new BadRecord()
  return { kind, path: record.toString('utf8', 1).replace(/^\.\//, '') }
}
