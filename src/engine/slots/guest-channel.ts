/** The frames between runner and guest, as guest/PROTOCOL.md describes them. Nothing here does input or output. */
import { text, u32, u64 } from './guest-records.ts'

/** The other side broke the protocol; its slot is not to be trusted any further. */
export class GuestProtocolError extends Error {
  constructor(problem: string) {
    super(`the guest broke the protocol: ${problem}`)
    this.name = 'GuestProtocolError'
  }
}

export const guestProtocolVersion = 3

const headerBytes = 12
/** Largest payload from the guest; what it sends is cut to this before it is believed. */
export const maxFromGuestBytes = 65_536
const maxToGuestBytes = 1_048_576

export const toGuest = {
  prepare: 1,
  code: 2,
  stdin: 3,
  go: 4,
  credit: 5,
  kill: 6,
  begin: 7,
  zygote: 8,
  pictureCredit: 9,
  input: 10,
  spare: 11,
} as const
export const fromGuest = {
  hello: 64,
  waiting: 65,
  stdout: 66,
  stderr: 67,
  exited: 68,
  failed: 69,
  forker: 70,
  zygoteGone: 71,
  pictures: 72,
  inputRoom: 73,
  spareReady: 74,
  spareGone: 75,
} as const
/** Bytes of INPUT that may be sent before the guest has reported that they were taken. */
export const inputWindowBytes = 256 * 1024

export type FromGuestKind = (typeof fromGuest)[keyof typeof fromGuest]

export interface Frame<Kind extends number = FromGuestKind> {
  kind: Kind
  run: number
  /** Valid only until the next `push`: copy what is to be kept. */
  payload: Buffer
}

/** @throws RangeError when the payload is larger than a guest takes. */
export function encodeFrame(kind: number, run: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  if (payload.length > maxToGuestBytes)
    throw new RangeError(`a frame to the guest holds at most ${maxToGuestBytes} bytes`)
  const frame = Buffer.allocUnsafe(headerBytes + payload.length)
  frame.writeUInt32LE(payload.length, 0)
  frame.writeUInt32LE(run, 4)
  frame.writeUInt32LE(kind, 8)
  frame.set(payload, headerBytes)
  return frame
}

/** One frame per mebibyte; none for no bytes. */
export function encodeBytes(kind: number, run: number, bytes: Uint8Array): Buffer[] {
  const frames: Buffer[] = []
  for (let at = 0; at < bytes.length; at += maxToGuestBytes)
    frames.push(encodeFrame(kind, run, bytes.subarray(at, at + maxToGuestBytes)))
  return frames
}

/** @param kind `credit` or `pictureCredit`. */
export function encodeCredit(kind: number, run: number, bytes: number): Buffer {
  const payload = Buffer.allocUnsafe(4)
  payload.writeUInt32LE(bytes, 0)
  return encodeFrame(kind, run, payload)
}

/** How the main process of a jail that is made ahead comes about: started at GO, or forked by the language host. */
export type PrewarmMethod = 'exec' | 'fork'
const prewarmMethods: Record<PrewarmMethod, number> = { exec: 1, fork: 2 }

/** Entries of the dock of a slot that a run has. */
export interface DockMounts {
  /** What is mounted at home. Absent: an empty tmpfs is. */
  dock?: string | undefined
  /** What is mounted at /volumes, with all that is mounted below it. Absent: nothing is. */
  volumes?: string | undefined
}

/** What a jail is made from. Sizes in bytes. */
export interface Preparation extends DockMounts {
  /** Command line; the first word is the path of the program inside the image. */
  argv: readonly string[]
  env: Readonly<Record<string, string>>
  home: string
  /** A plain file name below /run/glovebox. Absent: standard input carries the source text. */
  codeFile?: string
  /** A plain file name in the home to which the program is copied, and from which it is started. Absent: it is not. */
  homeCodeFile?: string | undefined
  /** What the run trusts, in PEM, which becomes a file. Absent: no file is made. */
  certificates?: string | undefined
  tmpBytes: number
  homeBytes: number
  openFiles: number
  fileBytes: number
  pids: number
  /** The memory and the share of processors that the run is shown. */
  memoryBytes: number
  cpus: number
  /** Processors that the run is shown. */
  shownCpus: number
  codeBytes: number
  /** Made before its run is known, see `PrewarmMethod`; nothing of a run is among the rest then. */
  prewarm?: PrewarmMethod
  /** Absent: standard input is empty, unless it carries the source text. */
  stdinBytes?: number
  creditBytes: number
  pictureCreditBytes: number
}

/** Tags of records. */
export const tag = {
  arg: 1,
  env: 2,
  home: 3,
  codeFile: 4,
  tmpBytes: 5,
  homeBytes: 6,
  openFiles: 7,
  fileBytes: 8,
  pids: 9,
  cpus: 10,
  codeBytes: 11,
  stdinBytes: 12,
  credit: 13,
  dock: 14,
  prewarm: 15,
  volumes: 16,
  pictureCredit: 17,
  memoryBytes: 18,
  cpuQuota: 19,
  homeCodeFile: 20,
  rootDisk: 21,
  rootImage: 22,
  certificates: 23,
  setId: 24,
  spare: 25,
} as const

/** The period of CPU_QUOTA. */
export const cpuPeriodUs = 100_000

/** @throws RangeError when it does not fit into one frame, or a word holds a NUL. */
export function encodePrepare(run: number, of: Preparation): Buffer {
  const records = [
    ...of.argv.map((word) => text(tag.arg, word)),
    ...variables(of.env),
    text(tag.home, of.home),
    ...(of.codeFile === undefined ? [] : [text(tag.codeFile, of.codeFile)]),
    ...(of.homeCodeFile === undefined ? [] : [text(tag.homeCodeFile, of.homeCodeFile)]),
    ...(of.certificates === undefined ? [] : [text(tag.certificates, of.certificates)]),
    u64(tag.tmpBytes, of.tmpBytes),
    u64(tag.homeBytes, of.homeBytes),
    u64(tag.openFiles, of.openFiles),
    u64(tag.fileBytes, of.fileBytes),
    u64(tag.pids, of.pids),
    u32(tag.cpus, of.shownCpus),
    u64(tag.memoryBytes, of.memoryBytes),
    u64(tag.cpuQuota, Math.round(of.cpus * cpuPeriodUs)),
    u64(tag.codeBytes, of.codeBytes),
    ...(of.stdinBytes === undefined ? [] : [u64(tag.stdinBytes, of.stdinBytes)]),
    u64(tag.credit, of.creditBytes),
    u64(tag.pictureCredit, of.pictureCreditBytes),
    ...docked(of),
    ...(of.prewarm === undefined ? [] : [u32(tag.prewarm, prewarmMethods[of.prewarm])]),
  ]
  return encodeFrame(toGuest.prepare, run, Buffer.concat(records))
}

/** The run of a jail that was made ahead. @throws RangeError as `encodePrepare` does. */
export function encodeBegin(
  run: number,
  of: { env: Readonly<Record<string, string>>; codeBytes: number; stdinBytes: number } & DockMounts,
): Buffer {
  const records = [
    ...variables(of.env),
    ...docked(of),
    u64(tag.codeBytes, of.codeBytes),
    u64(tag.stdinBytes, of.stdinBytes),
  ]
  return encodeFrame(toGuest.begin, run, Buffer.concat(records))
}

/**
 * An interpreter that is forked: for runs, as their language host, or for the first kernel of a sandbox.
 * @throws RangeError as `encodePrepare` does.
 */
export function encodeForked(
  as: 'zygote' | 'spare',
  of: { argv: readonly string[]; env: Readonly<Record<string, string>> },
): Buffer {
  return encodeFrame(
    toGuest[as],
    0,
    Buffer.concat([...of.argv.map((word) => text(tag.arg, word)), ...variables(of.env)]),
  )
}

export const docked = ({ dock, volumes }: DockMounts): Buffer[] => [
  ...(dock === undefined ? [] : [text(tag.dock, dock)]),
  ...(volumes === undefined ? [] : [text(tag.volumes, volumes)]),
]

const variables = (env: Readonly<Record<string, string>>): Buffer[] =>
  Object.entries(env).map(([name, value]) => text(tag.env, `${name}=${value}`))

const fromGuestKinds: ReadonlySet<number> = new Set(Object.values(fromGuest))

/**
 * BOUNDARY: turns what the guest sends into frames. It believes nothing: a frame with a field out of bounds ends it with
 * GuestProtocolError, and it never holds more than one unfinished frame.
 */
export class FrameDecoder<Kind extends number = FromGuestKind> {
  readonly #known: ReadonlySet<number>

  /** An unfinished frame. Allocated once, as large as a frame can be. */
  readonly #pending = Buffer.allocUnsafe(headerBytes + maxFromGuestBytes)
  #pendingBytes = 0

  /** @param known the kinds of frames that may come. */
  constructor(known: ReadonlySet<number> = fromGuestKinds) {
    this.#known = known
  }

  /**
   * Takes the next bytes, however they were cut, and hands every frame that is now whole to `onFrame`, in order.
   * @throws GuestProtocolError on the first malformed header; the decoder is of no use afterwards.
   */
  push(chunk: Buffer, onFrame: (frame: Frame<Kind>) => void): void {
    let rest = this.#finishPending(chunk, onFrame)
    while (rest.length >= headerBytes) {
      const total = headerBytes + payloadBytesOf(rest, this.#known)
      if (rest.length < total) break
      onFrame(toFrame(rest.subarray(0, total)))
      rest = rest.subarray(total)
    }
    this.#pendingBytes += rest.copy(this.#pending, this.#pendingBytes)
  }

  /** Bytes of an unfinished frame; at its end a stream must have none. */
  get unfinishedBytes(): number {
    return this.#pendingBytes
  }

  /** Completes the frame that an earlier chunk began, as far as this chunk reaches. @returns what is left of the chunk. */
  #finishPending(chunk: Buffer, onFrame: (frame: Frame<Kind>) => void): Buffer {
    let rest = chunk
    if (this.#pendingBytes === 0) return rest
    rest = this.#fill(rest, headerBytes)
    if (this.#pendingBytes < headerBytes) return rest
    const total = headerBytes + payloadBytesOf(this.#pending, this.#known)
    rest = this.#fill(rest, total)
    if (this.#pendingBytes < total) return rest
    this.#pendingBytes = 0
    onFrame(toFrame(this.#pending.subarray(0, total)))
    return rest
  }

  /** Moves bytes from the chunk until so many are pending, or the chunk is used up. */
  #fill(chunk: Buffer, until: number): Buffer {
    const missing = Math.max(0, until - this.#pendingBytes)
    const taken = chunk.copy(this.#pending, this.#pendingBytes, 0, Math.min(missing, chunk.length))
    this.#pendingBytes += taken
    return chunk.subarray(taken)
  }
}

/** Checks a whole header. @returns the size of its payload. */
function payloadBytesOf(header: Buffer, known: ReadonlySet<number>): number {
  const bytes = header.readUInt32LE(0)
  if (bytes > maxFromGuestBytes) throw new GuestProtocolError(`a payload of ${bytes} bytes`)
  // The kind is one byte, the three after it are zero: as one number they are the kind.
  const kind = header.readUInt32LE(8)
  if (!known.has(kind)) throw new GuestProtocolError(`a frame of kind ${kind}`)
  return bytes
}

const toFrame = <Kind extends number>(whole: Buffer): Frame<Kind> => ({
  kind: whole.readUInt32LE(8) as Kind,
  run: whole.readUInt32LE(4),
  payload: whole.subarray(headerBytes),
})

/** @throws GuestProtocolError unless the payload is exactly one u32. */
export function u32Of(frame: Frame<number>): number {
  if (frame.payload.length !== 4) throw new GuestProtocolError(`${frame.payload.length} bytes where a number belongs`)
  return frame.payload.readUInt32LE(0)
}

/** How the main process of a jail ended, by the guest's word. */
export type Exit = { how: 'exited'; code: number } | { how: 'signaled'; signal: number } | { how: 'killed' }

/** @throws GuestProtocolError when no process can end this way. */
export function exitOf({ payload }: Frame<number>): Exit {
  if (payload.length !== 5) throw new GuestProtocolError(`an ending of ${payload.length} bytes`)
  const how = payload.readUInt8(0)
  const value = payload.readUInt32LE(1)
  if (how === 0 && value <= 255) return { how: 'exited', code: value }
  if (how === 1 && value >= 1 && value <= 64) return { how: 'signaled', signal: value }
  if (how === 2) return { how: 'killed' }
  throw new GuestProtocolError(`an ending (${how}, ${value}) that no process can have`)
}
