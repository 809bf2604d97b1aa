import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Duplex, Readable } from 'node:stream'
import { promisify } from 'node:util'
import { systemPath } from '../jails/programs.ts'
import type { RuntimeName } from '../settings.ts'

const execute = promisify(execFile)

/** Time limit for a call of an OCI runtime, in milliseconds. A start takes tens of milliseconds. */
const commandWithinMs = 20_000
/** Number of bytes that are kept of an error message; bounded, since a slot writes to the same stream. */
const keptStderrBytes = 4_096
/** Maximum number of bytes that are read from standard error during the life of a slot. */
const readStderrBytes = 1_048_576

/** The runtime reported a failure; the message contains its output. */
export class RuntimeFailed extends Error {
  constructor(runtime: string, command: string, said: string) {
    super(`${runtime} ${command} failed: ${said.trim() || 'it said nothing'}`)
    this.name = 'RuntimeFailed'
  }
}

/** A running container whose runtime process has exited. */
export interface Container {
  readonly id: string
  /** Process ID of its init on the host. */
  readonly pid: number
  /** One socket for its standard input and output, initially paused. */
  readonly channel: Duplex
  /** The end of its output on standard error. */
  stderr(): string
}

/** An OCI runtime, controlled through the command line that all three have in common. */
export class Runtime {
  readonly name: RuntimeName
  readonly path: string
  readonly #root: string

  /** @param root directory for the state of its containers, used by this instance only. */
  constructor(name: RuntimeName, path: string, root: string) {
    this.name = name
    this.path = path
    this.#root = root
  }

  /** Returns the first line of `--version`. */
  async version(): Promise<string> {
    const { stdout } = await execute(this.path, ['--version'], this.#options)
    return stdout.split('\n')[0]?.trim() ?? ''
  }

  /**
   * Starts the container of a bundle in detached mode: the runtime exits, and the init process keeps the three streams.
   * @throws RuntimeFailed with the message of the runtime. The container can exist partially then and must be deleted.
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

  /** Kills and deletes a container. Does nothing if it does not exist. */
  async delete(id: string): Promise<void> {
    try {
      await execute(this.path, ['--root', this.#root, 'delete', '--force', id], this.#options)
    } catch (error) {
      const said = (error as { stderr?: string }).stderr ?? String(error)
      if ((await this.list()).includes(id)) throw new RuntimeFailed(this.name, 'delete', said.slice(-keptStderrBytes))
    }
  }

  /** Returns the IDs of all containers below this root, running or not. */
  async list(): Promise<string[]> {
    const { stdout } = await execute(this.path, ['--root', this.#root, 'list', '--quiet'], this.#options)
    return stdout.split('\n').filter(Boolean)
  }

  get #options() {
    return { env: { PATH: systemPath }, timeout: commandWithinMs, killSignal: 'SIGKILL' as const, maxBuffer: 1_048_576 }
  }
}

/**
 * Node closes the standard input of a child when the child exits. Here the child is the runtime, and its container
 * continues to run. Therefore the channel is a separate socket, which the shell duplicates to standard input and output.
 */
const withChannel = 'exec "$0" "$@" <&3 >&3 3>&-'

/** Keeps output that Node would discard when a child exits. @returns a function that puts it back and pauses the stream. */
function hold(channel: Duplex): () => void {
  const early: Buffer[] = []
  const keep = (chunk: Buffer) => early.push(chunk)
  channel.on('data', keep)
  // The end of the slot can close it at any time; its user receives the `close` event.
  channel.on('error', () => undefined)
  return () => {
    channel.off('data', keep)
    channel.pause()
    if (early.length > 0 && !channel.readableEnded) channel.unshift(Buffer.concat(early))
  }
}

/** BOUNDARY: a slot can write to standard error endlessly. Keeps only the end, and stops reading after too much. */
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
