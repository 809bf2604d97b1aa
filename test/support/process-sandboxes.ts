import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, mkdtempSync, rmSync } from 'node:fs'
import { appendFile, cp, lstat, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join, posix } from 'node:path'
import type { Duplex } from 'node:stream'
import { AsyncQueue } from '../../src/base/async-queue.ts'
import { Refusal } from '../../src/base/errors.ts'
import type { Review } from '../../src/base/host-workspace.ts'
import type {
  FileChange,
  ProcessEnding,
  ProcessEvent,
  ProcessSpec,
  ProcessStatus,
  SandboxCrash,
  SandboxFile,
  SandboxSpec,
  SandboxStatus,
} from '../../src/base/sandbox.ts'
import type {
  RunnerSandboxes,
  SandboxFiles,
  SandboxProcesses,
  SandboxStates,
  SandboxTunnels,
} from '../../src/runner/protocol/sandboxes.ts'

interface Sandbox {
  spec: SandboxSpec
  status: SandboxStatus
  processes: Map<number, Process>
}

/** A process with its output. */
class Process {
  readonly status: ProcessStatus
  readonly child: ChildProcess
  readonly #events: ProcessEvent[] = []
  readonly #readers = new Set<AsyncQueue<ProcessEvent>>()

  constructor(status: ProcessStatus, child: ChildProcess) {
    this.status = status
    this.child = child
  }

  attach(afterSeq: number): AsyncQueue<ProcessEvent> {
    const queue = new AsyncQueue<ProcessEvent>({ capacity: 1_000_000, onAbandon: () => this.#readers.delete(queue) })
    for (const event of this.#events) if (event.seq > afterSeq || event.kind === 'ended') queue.push(event)
    if (this.status.ending) queue.close()
    else this.#readers.add(queue)
    return queue
  }

  output(stream: 'stdout' | 'stderr' | 'channel', bytes: Uint8Array): void {
    this.#push({ kind: 'output', seq: this.#events.length + 1, stream, bytes })
  }

  end(ending: ProcessEnding): void {
    if (this.status.ending) return
    this.status.ending = ending
    this.#push({ kind: 'ended', seq: this.#events.length + 1, ending })
    for (const reader of this.#readers) reader.close()
  }

  #push(event: ProcessEvent): void {
    this.#events.push(event)
    for (const reader of this.#readers) reader.push(event)
  }
}

/**
 * Sandboxes without any isolation, for the suites of the front alone: a directory of this machine and plain processes
 * in it.
 */
export class ProcessSandboxes implements RunnerSandboxes {
  /** To the loopback of this machine. */
  readonly tunnels: SandboxTunnels = {
    open: async (_sandboxId, port) => {
      const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true })
      await once(socket, 'connect').catch(() => {
        throw new Refusal('port_closed', { port })
      })
      return socket
    },
  }
  readonly #root = mkdtempSync(join(tmpdir(), 'glovebox-sandboxes-'))
  readonly #sandboxes = new Map<string, Sandbox>()
  readonly #readers = new Set<AsyncQueue<SandboxStatus>>()
  #lastProcess = 0
  /** Refusal of every start. */
  startRefusal: Refusal | undefined
  /** Refusal of every stop. */
  stopRefusal: Refusal | undefined
  /** Images that sandboxes can name. */
  readonly imageNames = new Set<string>()
  /** With what each was started. */
  readonly specs: SandboxSpec[] = []
  /** With what the files of each were opened. */
  readonly filesSpecs: SandboxSpec[] = []

  async start(spec: SandboxSpec): Promise<void> {
    if (this.startRefusal) throw this.startRefusal
    if (spec.image !== undefined && !this.imageNames.has(spec.image))
      throw new Refusal('image_unknown', { image: spec.image })
    if (this.#sandboxes.has(spec.sandboxId)) return
    const { sandboxId, orgId } = spec
    this.specs.push(spec)
    const status: SandboxStatus = { sandboxId, orgId, state: { kind: 'running' }, startedAt: Date.now() }
    await mkdir(join(this.#root, sandboxId, spec.workdir), { recursive: true })
    this.#sandboxes.set(sandboxId, { spec, status, processes: new Map() })
  }

  /** Its files are those of the machine, which are there also while it is stopped. */
  async openFiles(spec: SandboxSpec): Promise<void> {
    this.filesSpecs.push(spec)
  }

  async stop(sandboxId: string, _graceMs: number): Promise<void> {
    if (this.stopRefusal) throw this.stopRefusal
    this.#end(this.#of(sandboxId))
  }

  async pause(sandboxId: string): Promise<void> {
    this.#of(sandboxId).status.state = { kind: 'paused' }
  }

  async changeNetwork(): Promise<void> {}

  async resume(sandboxId: string): Promise<void> {
    this.#of(sandboxId).status.state = { kind: 'running' }
  }

  async remove(_orgId: string, sandboxId: string): Promise<boolean> {
    const known = this.#sandboxes.get(sandboxId)
    if (known) this.#end(known)
    await rm(join(this.#root, sandboxId), { recursive: true, force: true })
    return known !== undefined
  }

  async list(): Promise<SandboxStatus[]> {
    return [...this.#sandboxes.values()].map(({ status }) => status)
  }

  /** Plain processes keep nothing apart. */
  async review(): Promise<Review> {
    return { changes: [], unsupported: [], isIncomplete: false }
  }

  changes(): AsyncQueue<SandboxStatus> {
    const queue = new AsyncQueue<SandboxStatus>({ capacity: 1_000, onAbandon: () => this.#readers.delete(queue) })
    this.#readers.add(queue)
    return queue
  }

  async figures(sandboxIds: readonly string[]) {
    return sandboxIds.map((id) => {
      const known = this.#sandboxes.get(id)
      if (!known) return null
      return {
        ...{ cpuSeconds: 0.5, memoryBytes: 1024 * 1024, memoryLimitBytes: known.spec.limits.memoryBytes },
        ...{ diskBytes: 4096, diskQuotaBytes: known.spec.disk.bytes, processes: known.processes.size },
        ...{ uptimeMs: 1_000, networkReceivedBytes: 0, networkSentBytes: 0, network: [] },
      }
    })
  }

  /** Ends a sandbox as a crash does. */
  crash(sandboxId: string, reason: SandboxCrash): void {
    const sandbox = this.#of(sandboxId)
    this.#end(sandbox)
    this.#tell({ ...sandbox.status, state: { kind: 'crashed', reason } })
  }

  /** Loses every sandbox, as a runner that was killed. Their disks remain. */
  lose(): void {
    for (const sandbox of [...this.#sandboxes.values()]) this.#end(sandbox)
    for (const reader of this.#readers) reader.close()
    this.#readers.clear()
  }

  close(): void {
    this.lose()
    rmSync(this.#root, { recursive: true, force: true })
  }

  /** Plain processes keep none. */
  readonly states: SandboxStates = {
    keep: async () => undefined,
    check: async (_sandboxId, context) => {
      throw new Refusal('rewind_unavailable', { context, reason: 'it keeps no files' })
    },
    rewind: async () => ({ restored: 0, removed: 0, failed: 0, problems: [] }),
    forget: async () => undefined,
  }

  readonly processes: SandboxProcesses = {
    start: async (sandboxId, spec) => this.#spawn(this.#running(sandboxId), spec),
    startFollowed: async (sandboxId, spec) => {
      const status = this.#spawn(this.#running(sandboxId), spec)
      return { status, events: this.#process(sandboxId, status.processId).attach(0) }
    },
    attach: (sandboxId, processId, afterSeq) => this.#process(sandboxId, processId).attach(afterSeq),
    write: async (sandboxId, processId, to, bytes) => {
      const { child } = this.#process(sandboxId, processId)
      const stream = to === 'stdin' ? child.stdin : (child.stdio[3] as Duplex)
      await new Promise<void>((resolve) => stream!.write(bytes, () => resolve()))
    },
    close: async (sandboxId, processId, what) => {
      const { child } = this.#process(sandboxId, processId)
      const stream = what === 'stdin' ? child.stdin : (child.stdio[3] as Duplex)
      stream?.end()
    },
    signal: async (sandboxId, processId, signal) => kill(this.#process(sandboxId, processId).child, signal),
    resize: async (sandboxId, processId) => void this.#process(sandboxId, processId),
    list: async (sandboxId) => [...this.#running(sandboxId).processes.values()].map(({ status }) => status),
    forget: async (sandboxId, processId) => {
      this.#process(sandboxId, processId)
      this.#of(sandboxId).processes.delete(processId)
    },
  }

  readonly files: SandboxFiles = {
    stat: (id, path) => this.#stat(id, path),
    list: async (id, path, { cursor = '', limit }) => {
      const names = await orRefusal(readdir(this.#path(id, path)), path)
      const page = names.sort().filter((name) => name > cursor)
      const entries = await Promise.all(
        page.slice(0, limit).map((name) => this.#stat(id, posix.join(this.#full(id, path), name))),
      )
      return { entries, ...(page.length > limit && { cursor: page[limit - 1]! }) }
    },
    read: async (id, path, range) => {
      const status = await this.#stat(id, path)
      if (status.kind !== 'file') throw new Refusal('not_a_file', { path, kind: status.kind })
      const part = range && { start: range.offset, end: range.offset + range.lengthBytes - 1 }
      return { status, bytes: createReadStream(this.#path(id, path), part) }
    },
    write: async (id, path, source, { append, makeParents, mode }) => {
      const target = this.#path(id, path)
      if (makeParents) await mkdir(dirname(target), { recursive: true })
      const pieces: Uint8Array[] = []
      for await (const piece of source) pieces.push(piece)
      const bytes = Buffer.concat(pieces)
      await orRefusal((append ? appendFile : writeFile)(target, bytes, mode === undefined ? {} : { mode }), path)
      return bytes.length
    },
    makeDirectory: async (id, path, { parents }) => {
      await orRefusal(mkdir(this.#path(id, path), { recursive: parents ?? false }), path)
    },
    move: async (id, from, to, mayReplace) => {
      await this.#requireFree(id, to, mayReplace)
      await orRefusal(rename(this.#path(id, from), this.#path(id, to)), from)
    },
    copy: async (id, from, to, mayReplace) => {
      await this.#requireFree(id, to, mayReplace)
      await orRefusal(cp(this.#path(id, from), this.#path(id, to), { recursive: true }), from)
    },
    remove: async (id, path, recursive) => {
      await this.#stat(id, path)
      await orRefusal(rm(this.#path(id, path), { recursive }), path)
    },
    watch: async (_id, path) => {
      const queue = new AsyncQueue<FileChange>({ capacity: 10 })
      queue.push({ kind: 'created', path: posix.join(path, 'new') })
      return queue
    },
  }

  #spawn(sandbox: Sandbox, spec: ProcessSpec): ProcessStatus {
    const { sandboxId, env, workdir } = sandbox.spec
    const [program = '', ...args] = spec.argv
    const child = spawn(program, args, {
      cwd: join(this.#root, sandboxId, spec.cwd ?? workdir),
      env: { PATH: process.env.PATH, HOME: '/root', ...env, ...spec.env },
      stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
      detached: true,
    })
    const processId = ++this.#lastProcess
    const status: ProcessStatus = { processId, argv: spec.argv, startedAt: Date.now() }
    if (child.pid !== undefined) status.pid = child.pid
    const own = new Process(status, child)
    sandbox.processes.set(processId, own)
    if (!spec.stdin) child.stdin?.end()
    child.stdin?.on('error', () => {})
    child.stdout?.on('data', (bytes: Buffer) => own.output('stdout', bytes))
    child.stderr?.on('data', (bytes: Buffer) => own.output('stderr', bytes))
    ;(child.stdio[3] as Duplex).on('data', (bytes: Buffer) => own.output('channel', bytes)).on('error', () => {})
    child.on('error', (error: NodeJS.ErrnoException) => {
      own.end({ kind: 'not_started', reason: error.code === 'ENOENT' ? 'program not found' : error.message })
    })
    let isLate = false
    const timer = setTimeout(
      () => {
        isLate = true
        kill(child, 9)
      },
      spec.timeoutMs ?? 2 ** 30,
    )
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      if (isLate) own.end({ kind: 'timed_out', limitMs: spec.timeoutMs ?? 0 })
      else if (signal !== null) own.end({ kind: 'signaled', signal: signal.replace('SIG', '') })
      else own.end({ kind: 'exited', code: code ?? 0 })
    })
    return status
  }

  #of(sandboxId: string): Sandbox {
    const sandbox = this.#sandboxes.get(sandboxId)
    if (!sandbox) throw new Refusal('sandbox_unknown', { sandbox: sandboxId, namespace: '' })
    return sandbox
  }

  #running(sandboxId: string): Sandbox {
    const sandbox = this.#of(sandboxId)
    const { kind } = sandbox.status.state
    if (kind !== 'running') throw new Refusal('sandbox_not_running', { sandbox: sandboxId, state: kind })
    return sandbox
  }

  #process(sandboxId: string, processId: number): Process {
    const found = this.#running(sandboxId).processes.get(processId)
    if (!found) throw new Refusal('process_unknown', { process: processId })
    return found
  }

  #end({ spec: { sandboxId }, processes }: Sandbox): void {
    this.#sandboxes.delete(sandboxId)
    for (const { child, end } of [...processes.values()].map((own) => ({ child: own.child, end: own }))) {
      end.end({ kind: 'sandbox_ended' })
      kill(child, 9)
    }
  }

  #tell(status: SandboxStatus): void {
    for (const reader of this.#readers) reader.push(status)
  }

  /** Workdir of a sandbox: of a stopped one, the default. */
  #full(sandboxId: string, path: string): string {
    return posix.resolve(this.#sandboxes.get(sandboxId)?.spec.workdir ?? '/workspace', path)
  }

  #path(sandboxId: string, path: string): string {
    return join(this.#root, sandboxId, this.#full(sandboxId, path))
  }

  async #stat(sandboxId: string, path: string): Promise<SandboxFile> {
    const stats = await orRefusal(lstat(this.#path(sandboxId, path)), path)
    const full = this.#full(sandboxId, path)
    return {
      ...{ name: posix.basename(full), path: full, kind: stats.isDirectory() ? 'directory' : 'file' },
      ...{ sizeBytes: stats.size, mode: stats.mode & 0o7777, uid: 0, gid: 0, modifiedMs: stats.mtimeMs },
    }
  }

  async #requireFree(sandboxId: string, path: string, mayReplace: boolean): Promise<void> {
    if (mayReplace) return
    const isTaken = await lstat(this.#path(sandboxId, path)).then(
      () => true,
      () => false,
    )
    if (isTaken) throw new Refusal('path_exists', { path })
  }
}

function kill({ pid }: ChildProcess, signal: number): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, signal)
  } catch {
    // It has ended.
  }
}

async function orRefusal<Result>(promise: Promise<Result>, path: string): Promise<Result> {
  try {
    return await promise
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') throw new Refusal('path_not_found', { path })
    if (code === 'EEXIST') throw new Refusal('path_exists', { path })
    if (code === 'ENOTDIR') throw new Refusal('not_a_directory', { path })
    throw error
  }
}
