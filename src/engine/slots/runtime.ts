import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Duplex, Readable } from 'node:stream'
import { promisify } from 'node:util'
import { systemPath } from '../jails/programs.ts'
import type { RuntimeName } from '../settings.ts'

const execute = promisify(execFile)

/** An OCI runtime that has not answered by then is broken; a start takes tens of milliseconds. */
const commandWithinMs = 20_000
/** What is kept of a complaint: enough to read, bounded since a slot writes there too. */
const keptStderrBytes = 4_096
/** Nobody has so much to complain of in the life of a slot. */
const readStderrBytes = 1_048_576

/** The runtime could not do what it was asked; the message carries its own words. */
export class RuntimeFailed extends Error {
  constructor(runtime: string, command: string, said: string) {
    super(`${runtime} ${command} failed: ${said.trim() || 'it said nothing'}`)
    this.name = 'RuntimeFailed'
  }
}

/** A container whose init runs and whose runtime process is gone. */
export interface Container {
  readonly id: string
  /** Process id of its init on the host. */
  readonly pid: number
  /** Its standard input and output: one socket, both ways. Paused until it is resumed. */
  readonly channel: Duplex
  /** The last that was written to its standard error. */
  stderr(): string
}

/** One OCI runtime, used through the command line that the three share. It has no opinions: the configuration has. */
export class Runtime {
  readonly name: RuntimeName
  readonly path: string
  readonly #root: string

  /** @param root where the runtime keeps what it knows of its containers; of this instance alone. */
  constructor(name: RuntimeName, path: string, root: string) {
    this.name = name
    this.path = path
    this.#root = root
  }

  /** The first line of `--version`. */
  async version(): Promise<string> {
    const { stdout } = await execute(this.path, ['--version'], this.#options)
    return stdout.split('\n')[0]?.trim() ?? ''
  }

  /**
   * Starts the container of a bundle, detached: the runtime ends, the container's init keeps the three streams.
   * @throws RuntimeFailed with the runtime's own complaint; the container may then exist half, so `delete` it.
   */
  async run(bundle: string, id: string): Promise<Container> {
    const pidFile = join(bundle, 'pid')
    const args = ['--root', this.#root, 'run', '--detach', '--bundle', bundle, '--pid-file', pidFile, id]
    const child = spawn('/bin/sh', ['-c', withChannel, this.path, ...args], {
      stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
      env: this.#options.env,
      cwd: bundle,
    })
    const channel = child.stdio[3] as Duplex
    const holdEarly = hold(channel)
    const stderr = keepTail(child.stderr as Readable)
    const timer = setTimeout(() => child.kill('SIGKILL'), commandWithinMs)
    try {
      const [code] = await once(child, 'exit')
      if (code !== 0) throw new RuntimeFailed(this.name, 'run', stderr())
      const pid = Number(await readFile(pidFile, 'utf8'))
      if (!Number.isSafeInteger(pid) || pid <= 1) throw new RuntimeFailed(this.name, 'run', 'no process id was written')
      holdEarly()
      return { id, pid, channel, stderr }
    } catch (error) {
      channel.destroy()
      child.stderr?.destroy()
      throw error
    } finally {
      clearTimeout(timer)
    }
  }

  /** Ends and forgets a container. One that does not exist is what was wanted. */
  async delete(id: string): Promise<void> {
    try {
      await execute(this.path, ['--root', this.#root, 'delete', '--force', id], this.#options)
    } catch (error) {
      const said = (error as { stderr?: string }).stderr ?? String(error)
      if ((await this.list()).includes(id)) throw new RuntimeFailed(this.name, 'delete', said.slice(-keptStderrBytes))
    }
  }

  /** The ids of every container below this root, running or not. */
  async list(): Promise<string[]> {
    const { stdout } = await execute(this.path, ['--root', this.#root, 'list', '--quiet'], this.#options)
    return stdout.split('\n').filter(Boolean)
  }

  get #options() {
    return { env: { PATH: systemPath }, timeout: commandWithinMs, killSignal: 'SIGKILL' as const, maxBuffer: 1_048_576 }
  }
}

/**
 * Node ends a child's standard input when the child exits, and here the child is the runtime, whose container lives on.
 * So the channel is a socket of its own, which the shell puts in the place of standard input and output.
 */
const withChannel = 'exec "$0" "$@" <&3 >&3 3>&-'

/** Node throws away what nobody reads when a child exits; this keeps it. @returns puts it back, and pauses. */
function hold(channel: Duplex): () => void {
  const early: Buffer[] = []
  const keep = (chunk: Buffer) => early.push(chunk)
  channel.on('data', keep)
  // Cut off at any moment by the end of the slot; who uses it learns it from `close`.
  channel.on('error', () => undefined)
  return () => {
    channel.off('data', keep)
    channel.pause()
    if (early.length > 0 && !channel.readableEnded) channel.unshift(Buffer.concat(early))
  }
}

/** BOUNDARY: the slot may write without end to its standard error; only the tail stays, and too much ends the reading. */
function keepTail(stream: Readable): () => string {
  let tail = Buffer.alloc(0)
  let bytes = 0
  stream.on('error', () => undefined)
  stream.on('data', (chunk: Buffer) => {
    tail = Buffer.concat([tail, chunk]).subarray(-keptStderrBytes)
    bytes += chunk.length
    if (bytes > readStderrBytes) stream.destroy()
  })
  return () => tail.toString('utf8')
}
