/**
 * Drives a guest in a minimal slot made with runc, without the engine: frames in, frames out.
 */
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { Duplex } from 'node:stream'
import { promisify } from 'node:util'
import { deviceNames } from '../../src/engine/slots/oci-config.ts'
import { builtGuest, type GuestBuild } from './built-guest.ts'

const execute = promisify(execFile)

export const kinds = {
  prepare: 1,
  code: 2,
  stdin: 3,
  go: 4,
  credit: 5,
  kill: 6,
  imageCredit: 9,
  spare: 11,
  hello: 64,
  waiting: 65,
  stdout: 66,
  stderr: 67,
  exited: 68,
  failed: 69,
  forker: 70,
  images: 72,
} as const
export type Kind = (typeof kinds)[keyof typeof kinds]

/** Why slots cannot be made on this machine, or undefined. */
export const slotsMissing: string | undefined = whySlotsAreMissing()

function whySlotsAreMissing(): string | undefined {
  if (process.getuid?.() !== 0) return 'making a slot needs root'
  try {
    execFileSync('runc', ['--version'], { stdio: 'ignore' })
    return undefined
  } catch {
    return 'runc is not installed'
  }
}

export function frame(kind: number, run: number, payload: Uint8Array = new Uint8Array()): Buffer {
  const header = Buffer.alloc(12)
  header.writeUInt32LE(payload.length, 0)
  header.writeUInt32LE(run, 4)
  header.writeUInt8(kind, 8)
  return Buffer.concat([header, payload])
}

export function record(tag: number, value: string | bigint | number | Uint8Array): Buffer {
  let bytes: Buffer
  if (typeof value === 'bigint') {
    bytes = Buffer.alloc(8)
    bytes.writeBigUInt64LE(value)
  } else if (typeof value === 'number') {
    bytes = Buffer.alloc(4)
    bytes.writeUInt32LE(value)
  } else bytes = Buffer.from(value as string)
  const header = Buffer.alloc(5)
  header.writeUInt8(tag, 0)
  header.writeUInt32LE(bytes.length, 1)
  return Buffer.concat([header, bytes])
}

export interface Request {
  args: readonly string[]
  env?: Readonly<Record<string, string>>
  code?: string | Uint8Array
  codeFile?: string
  stdin?: string | Uint8Array
  tmpBytes?: number
  homeBytes?: number
  openFiles?: number
  fileBytes?: number
  pids?: number
  cpus?: number
  /** Output bytes granted before the first output. */
  credit?: number
  /** The same for images. */
  imageCredit?: number
}

/** The payload of a PREPARE frame. */
export function preparation(request: Request): Buffer {
  const env = {
    PATH: '/usr/local/bin:/usr/bin:/bin:/opt/glovebox/bin',
    HOME: '/home/baponi',
    LANG: 'C.UTF-8',
    ...request.env,
  }
  const code = Buffer.from(request.code ?? '')
  return Buffer.concat([
    ...request.args.map((word) => record(1, word)),
    ...Object.entries(env).map(([name, value]) => record(2, `${name}=${value}`)),
    record(3, '/home/baponi'),
    ...(request.codeFile === undefined ? [] : [record(4, request.codeFile)]),
    record(5, BigInt(request.tmpBytes ?? 16 << 20)),
    record(6, BigInt(request.homeBytes ?? 16 << 20)),
    record(7, BigInt(request.openFiles ?? 1024)),
    record(8, BigInt(request.fileBytes ?? 64 << 20)),
    record(9, BigInt(request.pids ?? 64)),
    record(10, request.cpus ?? 1),
    record(11, BigInt(code.length)),
    ...(request.stdin === undefined ? [] : [record(12, BigInt(Buffer.from(request.stdin).length))]),
    record(13, BigInt(request.credit ?? 1 << 20)),
    record(17, BigInt(request.imageCredit ?? 1 << 20)),
    record(18, BigInt(256 << 20)),
    record(19, BigInt((request.cpus || 1) * 100_000)),
  ])
}

export interface Frame {
  kind: number
  run: number
  payload: Buffer
}

export interface Outcome {
  /** 'exited' and 'signaled' with a value; 'killed' when the guest does not know a status; 'failed' with its text. */
  how: 'exited' | 'signaled' | 'killed' | 'failed'
  value: number
  text: string
  stdout: Buffer
  stderr: Buffer
  frames: Frame[]
}

/** The first and last id of the slot's own range; far above what a machine gives its users. */
const idsPerSlot = 65536

function ociConfig(root: string, image: string, idBase: number, id: string, build: GuestBuild) {
  const capabilities = [
    'SYS_ADMIN',
    'SETUID',
    'SETGID',
    'SETPCAP',
    'SYS_CHROOT',
    'NET_ADMIN',
    'KILL',
    'CHOWN',
    'DAC_OVERRIDE',
    'FOWNER',
    'FSETID',
    'NET_BIND_SERVICE',
  ].map((name) => `CAP_${name}`)
  const ids = [{ containerID: 0, hostID: idBase, size: idsPerSlot }]
  const sealed = ['rbind', 'ro', 'nosuid', 'nodev']
  return {
    ociVersion: '1.0.2',
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: ['/guest'],
      env: ['PATH=/nowhere', 'SLOT_SECRET=not for jails', 'ASAN_OPTIONS=detect_leaks=0'],
      cwd: '/',
      capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
      noNewPrivileges: true,
    },
    root: { path: root, readonly: true },
    hostname: 'slot',
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc' },
      { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755', 'size=64k'] },
      { destination: '/scratch', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'nodev', 'mode=755', 'size=16m'] },
      { destination: '/image/root', type: 'bind', source: image, options: sealed },
      { destination: '/image/usr', type: 'bind', source: '/usr', options: sealed },
      { destination: '/image/node', type: 'bind', source: dirname(process.execPath), options: sealed },
      ...deviceNames.map((name) => ({
        destination: `/devices/${name}`,
        type: 'bind',
        source: `/dev/${name}`,
        options: ['bind'],
      })),
      ...(build === 'sanitized' ? [{ destination: '/usr', type: 'bind', source: '/usr', options: sealed }] : []),
    ],
    linux: {
      namespaces: ['pid', 'mount', 'ipc', 'uts', 'network', 'user', 'cgroup'].map((type) => ({ type })),
      uidMappings: ids,
      gidMappings: ids,
      cgroupsPath: `/${id}`,
      seccomp: {
        defaultAction: 'SCMP_ACT_ALLOW',
        // Without their names libseccomp kills what calls by them, and the jail's own answer would never be seen.
        architectures: process.arch === 'x64' ? ['SCMP_ARCH_X86_64', 'SCMP_ARCH_X86', 'SCMP_ARCH_X32'] : [],
        syscalls: [
          { names: ['clone3'], action: 'SCMP_ACT_ERRNO', errnoRet: 38 },
          {
            names: ['clone', 'unshare'],
            action: 'SCMP_ACT_ERRNO',
            errnoRet: 1,
            args: [{ index: 0, value: 0x10000000, valueTwo: 0x10000000, op: 'SCMP_CMP_MASKED_EQ' }],
          },
        ],
      },
    },
  }
}

const links = ['bin', 'sbin', 'lib', 'lib64'].filter((name) => existsSync(`/usr/${name}`))

function makeDirectories(parent: string, names: readonly string[]): void {
  for (const name of names) mkdirSync(join(parent, name), { recursive: true })
}

/** The jail root: the machine's /usr, a few lines of /etc, and mount points. */
function makeImage(image: string): void {
  makeDirectories(image, ['usr', 'etc', 'proc', 'dev', 'tmp', 'run', 'sys', 'home/baponi', 'opt/glovebox/bin'])
  for (const name of links) symlinkSync(`usr/${name}`, join(image, name))
  writeFileSync(join(image, 'etc/passwd'), 'root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/home/baponi:/bin/bash\n')
  writeFileSync(join(image, 'etc/group'), 'root:x:0:\nuser:x:1000:\n')
  for (const name of ['alternatives', 'ld.so.cache'])
    if (existsSync(`/etc/${name}`))
      cpSync(`/etc/${name}`, join(image, 'etc', name), { recursive: true, verbatimSymlinks: true })
}

function makeRoot(root: string, guest: string, build: GuestBuild): void {
  makeDirectories(root, [
    'proc',
    'dev',
    'scratch',
    'image/root',
    'image/usr',
    'image/node',
    ...(build === 'sanitized' ? ['usr'] : []),
  ])
  if (build === 'sanitized') for (const name of links) symlinkSync(`usr/${name}`, join(root, name))
  mkdirSync(join(root, 'devices'))
  for (const name of deviceNames) writeFileSync(join(root, 'devices', name), '')
  cpSync(guest, join(root, 'guest'))
  chmodSync(join(root, 'guest'), 0o755)
}

export interface SlotOptions {
  build: GuestBuild
  /** runc stays and hands on the guest's exit code: see `Slot.exitCode`. */
  foreground?: boolean
  /** Changes the image before the slot starts. */
  image?: (path: string) => void
}

export class Slot {
  readonly #child: ChildProcess
  readonly #input: Duplex
  readonly #directory: string
  readonly #id: string
  readonly #frames: Frame[] = []
  #rest: Buffer = Buffer.alloc(0)
  #wake = Promise.withResolvers<void>()
  #ended = false
  #lastRun = 0
  diagnostics = ''
  /** The pid of the jailer inside the slot. */
  jailer = 0
  /** Settles with runc's exit code, which is the guest's when it stays in the foreground. */
  readonly exitCode: Promise<number>

  constructor(options: SlotOptions) {
    this.#directory = mkdtempSync(join(tmpdir(), 'glovebox-guest-slot-'))
    chmodSync(this.#directory, 0o755)
    this.#id = `glovebox-test-${randomBytes(6).toString('hex')}`
    const [root, image, bundle] = ['root', 'image', 'bundle'].map((name) => join(this.#directory, name)) as [
      string,
      string,
      string,
    ]
    const binary = join(builtGuest(options.build), options.build === 'sanitized' ? 'guest-sanitized' : 'guest')
    makeDirectories(this.#directory, ['root', 'image', 'bundle'])
    makeImage(image)
    options.image?.(image)
    makeRoot(root, binary, options.build)
    const idBase = 0x40000000 + randomInt(8192) * idsPerSlot
    writeFileSync(join(bundle, 'config.json'), JSON.stringify(ociConfig(root, image, idBase, this.#id, options.build)))
    // Node closes the standard input of a child that exits, and a detached runc does: so it comes as descriptor 3.
    const runc = [...this.#state(), 'run', '--pid-file', this.#pidFile, '--bundle', bundle]
    const rest = [...(options.foreground === true ? [] : ['--detach']), this.#id]
    this.#child = spawn('sh', ['-c', 'exec runc "$@" <&3 3<&-', 'sh', ...runc, ...rest], {
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    })
    this.#input = this.#child.stdio[3] as Duplex
    // In the foreground the last diagnostics may arrive after the exit.
    const stderrRead = options.foreground === true ? once(this.#child.stderr!, 'close') : undefined
    this.exitCode = once(this.#child, 'exit').then(async ([code]) => {
      await stderrRead
      return code as number
    })
    this.#child.stdout?.on('data', (bytes: Buffer) => this.#take(bytes))
    this.#child.stdout?.on('close', () => this.#end())
    this.#child.stderr?.on('data', (bytes: Buffer) => {
      this.diagnostics += bytes.toString()
    })
    this.#input.on('error', () => {}) // the guest may end first: tests read that from its frames
  }

  #state(): string[] {
    return ['--root', join(this.#directory, 'state')]
  }

  #end(): void {
    this.#ended = true
    this.#wake.resolve()
  }

  #take(bytes: Buffer): void {
    this.#rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes])
    while (this.#rest.length >= 12) {
      const length = this.#rest.readUInt32LE(0)
      if (length > 65536 || this.#rest.readUInt32LE(8) > 255) throw new Error('the guest sent a malformed frame')
      if (this.#rest.length < 12 + length) break
      this.#frames.push({
        kind: this.#rest.readUInt8(8),
        run: this.#rest.readUInt32LE(4),
        payload: this.#rest.subarray(12, 12 + length),
      })
      this.#rest = this.#rest.subarray(12 + length)
    }
    this.#wake.resolve()
  }

  get #pidFile(): string {
    return join(this.#directory, 'pid')
  }

  /** Resolves when runc has written the guest's pid, which may be after HELLO. */
  async isKnown(): Promise<void> {
    while (!existsSync(this.#pidFile)) await new Promise((resolve) => setTimeout(resolve, 5))
  }

  /** The guest's pid as this machine sees it. */
  get pid(): number {
    return Number(readFileSync(this.#pidFile, 'utf8'))
  }

  send(...parts: Buffer[]): void {
    this.#input.write(Buffer.concat(parts))
  }

  /** Closes the guest's standard input, which is to end it. */
  hangUp(): void {
    this.#input.destroy()
  }

  /** The next frame, or undefined when the guest has ended. */
  async next(): Promise<Frame | undefined> {
    while (this.#frames.length === 0) {
      if (this.#ended) return undefined
      this.#wake = Promise.withResolvers()
      await this.#wake.promise
    }
    return this.#frames.shift()
  }

  /** The next frame, which must be of this kind. */
  async expect(kind: Kind): Promise<Frame> {
    const got = await this.next()
    if (got?.kind !== kind)
      throw new Error(`expected frame ${kind}, got ${got?.kind} (${got?.payload.toString()}) ${this.diagnostics}`)
    return got
  }

  /** The number of a run that the test sends by itself. */
  nextRun(): number {
    return ++this.#lastRun
  }

  /** Sends PREPARE, CODE and STDIN; returns the run number. */
  prepare(request: Request): number {
    const run = this.nextRun()
    this.send(
      frame(kinds.prepare, run, preparation(request)),
      ...chunks(kinds.code, run, request.code),
      ...chunks(kinds.stdin, run, request.stdin),
    )
    return run
  }

  /** Reads until the end of a run; grants as much credit as was used, unless told otherwise. */
  async finish(run: number, grants = true): Promise<Outcome> {
    const frames: Frame[] = []
    for (;;) {
      const got = await this.next()
      if (got === undefined) throw new Error(`the guest ended: ${this.diagnostics}`)
      if (got.run !== run) throw new Error(`a frame of run ${got.run} in run ${run}`)
      frames.push(got)
      if (got.kind === kinds.exited || got.kind === kinds.failed) return toOutcome(frames, got)
      if (grants && (got.kind === kinds.stdout || got.kind === kinds.stderr)) {
        const credit = Buffer.alloc(4)
        credit.writeUInt32LE(got.payload.length)
        this.send(frame(kinds.credit, run, credit))
      }
    }
  }

  /** A whole run. */
  async run(request: Request): Promise<Outcome> {
    const run = this.prepare(request)
    const first = await this.next()
    if (first?.kind === kinds.failed) return toOutcome([first], first)
    if (first?.kind !== kinds.waiting) throw new Error(`expected WAITING, got ${first?.kind}: ${this.diagnostics}`)
    this.send(frame(kinds.go, run))
    return this.finish(run)
  }

  async close(): Promise<void> {
    this.hangUp()
    await this.exitCode
    await execute('runc', [...this.#state(), 'delete', '--force', this.#id])
    rmSync(this.#directory, { recursive: true, force: true })
  }
}

function* chunks(kind: number, run: number, content: string | Uint8Array | undefined): Generator<Buffer> {
  const bytes = Buffer.from(content ?? '')
  for (let at = 0; at < bytes.length; at += 1 << 20) yield frame(kind, run, bytes.subarray(at, at + (1 << 20)))
}

function toOutcome(frames: Frame[], last: Frame): Outcome {
  const of = (kind: number) => Buffer.concat(frames.filter((one) => one.kind === kind).map((one) => one.payload))
  const how =
    last.kind === kinds.failed ? 'failed' : (['exited', 'signaled', 'killed'] as const)[last.payload.readUInt8(0)]
  if (how === undefined) throw new Error('EXITED says how in no known way')
  return {
    how,
    value: how === 'failed' ? 0 : last.payload.readUInt32LE(1),
    text: how === 'failed' ? last.payload.toString() : '',
    stdout: of(kinds.stdout),
    stderr: of(kinds.stderr),
    frames,
  }
}

/** A slot whose guest has said HELLO and named its jailer. */
export async function openSlot(options: SlotOptions): Promise<Slot> {
  const slot = new Slot(options)
  await slot.expect(kinds.hello)
  slot.jailer = (await slot.expect(kinds.forker)).payload.readUInt32LE()
  await slot.isKnown()
  return slot
}
