/** The frames between the runner and the agent of a sandbox, as guest/PROTOCOL.md describes them. */
import type { ProcessSpec, TerminalSize } from '../../base/sandbox.ts'
import {
  cpuPeriodUs,
  docked,
  encodeFrame,
  type Frame,
  FrameDecoder,
  GuestProtocolError,
  type Preparation,
  tag,
  toGuest,
} from '../slots/guest-channel.ts'
import { record, text, u32, u64 } from '../slots/guest-records.ts'

/** The jail of a sandbox. Sizes in bytes. */
export interface SandboxPreparation {
  /** Entry of the dock with the disk, and the one below which the parts of the image are. */
  rootDisk: string
  rootImage: string
  /** What is mounted at /volumes. Absent: nothing is. */
  volumes?: string | undefined
  /** What is mounted at the home of the user. Absent: it is a part of the root. */
  dock?: string | undefined
  /** Whether files get no set-user-ID and set-group-ID bits. */
  forbidsSetId?: boolean | undefined
  /** Whether its first Python kernel may be a fork of the spare interpreter of its slot. */
  takesSpare?: boolean | undefined
  limits: Pick<Preparation, 'tmpBytes' | 'openFiles' | 'fileBytes' | 'pids' | 'memoryBytes' | 'cpus'>
  shownCpus: number
  creditBytes: number
}

/** /run of a sandbox holds sockets and locks. */
const runDirectoryBytes = 16 * 1024 * 1024

/** @throws RangeError when it does not fit into one frame. */
export function encodeSandbox(run: number, of: SandboxPreparation): Buffer {
  const { limits } = of
  const records = [
    text(tag.rootDisk, of.rootDisk),
    text(tag.rootImage, of.rootImage),
    ...docked(of),
    ...(of.forbidsSetId ? [u32(tag.setId, 0)] : []),
    ...(of.takesSpare ? [u32(tag.spare, 1)] : []),
    u64(tag.tmpBytes, limits.tmpBytes),
    u64(tag.homeBytes, runDirectoryBytes),
    u64(tag.openFiles, limits.openFiles),
    u64(tag.fileBytes, limits.fileBytes),
    u64(tag.pids, limits.pids),
    u32(tag.cpus, of.shownCpus),
    u64(tag.memoryBytes, limits.memoryBytes),
    u64(tag.cpuQuota, Math.round(limits.cpus * cpuPeriodUs)),
    u64(tag.credit, of.creditBytes),
  ]
  return encodeFrame(toGuest.prepare, run, Buffer.concat(records))
}

export const toAgent = {
  spawn: 1,
  input: 2,
  inputEnd: 3,
  channel: 4,
  channelEnd: 5,
  credit: 6,
  channelCredit: 7,
  signal: 8,
  resize: 9,
} as const

export const fromAgent = {
  started: 64,
  notStarted: 65,
  stdout: 66,
  stderr: 67,
  channel: 68,
  inputRoom: 69,
  channelRoom: 70,
  ended: 71,
} as const
export type FromAgentKind = (typeof fromAgent)[keyof typeof fromAgent]
export type AgentFrame = Frame<FromAgentKind>

/** Input of one process, and of its channel, that may be sent before the agent has reported that it was taken. */
export const agentWindowBytes = 64 * 1024

const fromAgentKinds: ReadonlySet<number> = new Set(Object.values(fromAgent))

/** BOUNDARY: turns what an agent sends into frames; what a sandbox controls is believed in nothing else. */
export const agentDecoder = (): FrameDecoder<FromAgentKind> => new FrameDecoder<FromAgentKind>(fromAgentKinds)

const spawnTag = { arg: 1, env: 2, cwd: 3, user: 4, terminal: 5, stdin: 6, channel: 7, makeCwd: 8, builtin: 9 } as const

/** Operations that the agent performs itself, in a process of its own. */
export const builtins = {
  stat: 1,
  list: 2,
  read: 3,
  write: 4,
  makeDirectory: 5,
  move: 6,
  copy: 7,
  remove: 8,
  watch: 9,
  restore: 10,
} as const
export type Builtin = keyof typeof builtins

/** What a process is started with: the variables are all that it has. */
export interface Spawn extends Pick<ProcessSpec, 'argv' | 'terminal' | 'stdin' | 'channel'> {
  env: Readonly<Record<string, string>>
  cwd: string
  user: string
  /** Whether `cwd` is created if it does not exist. */
  makesCwd?: boolean
  /** Instead of a program; `argv` are its arguments. */
  builtin?: Builtin
}

const nothing = Buffer.alloc(0)

/** @throws RangeError when it does not fit into one frame, or a word holds a NUL. */
export function encodeSpawn(number: number, of: Spawn): Buffer {
  const records = [
    ...of.argv.map((word) => text(spawnTag.arg, word)),
    ...Object.entries(of.env).map(([name, value]) => text(spawnTag.env, `${name}=${value}`)),
    text(spawnTag.cwd, of.cwd),
    text(spawnTag.user, of.user),
    ...(of.terminal ? [record(spawnTag.terminal, sizeOf(of.terminal))] : []),
    ...(of.stdin ? [record(spawnTag.stdin, nothing)] : []),
    ...(of.channel ? [record(spawnTag.channel, nothing)] : []),
    ...(of.builtin ? [u32(spawnTag.builtin, builtins[of.builtin])] : []),
    ...(of.makesCwd ? [record(spawnTag.makeCwd, nothing)] : []),
  ]
  return encodeFrame(toAgent.spawn, number, Buffer.concat(records))
}

export function encodeSignal(number: number, signal: number, target: 'group' | 'one'): Buffer {
  const payload = Buffer.alloc(5)
  payload.writeUInt32LE(signal, 0)
  payload.writeUInt8(target === 'group' ? 0 : 1, 4)
  return encodeFrame(toAgent.signal, number, payload)
}

export const encodeResize = (number: number, size: TerminalSize): Buffer =>
  encodeFrame(toAgent.resize, number, sizeOf(size))

function sizeOf({ columns, rows }: TerminalSize): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt16LE(columns, 0)
  bytes.writeUInt16LE(rows, 2)
  return bytes
}

/** How a process ended, by the agent's word. */
export type AgentExit = { how: 'exited'; code: number } | { how: 'signaled'; signal: number }

/** @throws GuestProtocolError when no process can end this way. */
export function agentExitOf({ payload }: AgentFrame): AgentExit {
  if (payload.length !== 5) throw new GuestProtocolError(`an ending of ${payload.length} bytes`)
  const how = payload.readUInt8(0)
  const value = payload.readUInt32LE(1)
  if (how === 0 && value <= 255) return { how: 'exited', code: value }
  if (how === 1 && value >= 1 && value <= 64) return { how: 'signaled', signal: value }
  throw new GuestProtocolError(`an ending (${how}, ${value}) that no process can have`)
}
