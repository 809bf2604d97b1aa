import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { Cleanup } from '../../base/cleanup.ts'
import { newId } from '../../base/ids.ts'
import type { SlotMachine } from '../slots/create-slot.ts'
import { toBuilderConfig } from '../slots/oci-config.ts'
import { withSlotDevices } from '../slots/slot-devices.ts'
import type { SlotDock } from '../slots/slot-parts.ts'

/** Memory, processes and processors of a builder: for dpkg with its scripts, or a layer with half a million entries. */
const limits = { memoryBytes: 1024 * 1024 * 1024, pids: 256, cpus: 2 }

/** A line of a builder is an answer of a few hundred bytes, or the end of the output of a script. */
const lineBytesMax = 64 * 1024

/** Piece of a layer in one frame. */
const pieceBytes = 256 * 1024

/** The root directory of builders, and the machine that they run on. */
export interface BuilderMachine extends Pick<SlotMachine, 'runtime' | 'cgroups' | 'ids' | 'bundlesDir' | 'devicesDir'> {
  builderRoot: string
  openFilesMax: number
}

/** The answer of a builder to one request. BOUNDARY: a layer can make its process say anything. */
export interface BuilderAnswer {
  error: 'full' | 'invalid' | 'failed' | 'zstd_missing' | undefined
  detail: string
  /** Digest of a layer after decompression. */
  diffId: string
  /** Entries of a layer, and what of them an image cannot have. */
  entries: number
  devices: number
  xattrs: number
  owners: number
}

/** The builder ended before it had answered. */
export class BuilderLost extends Error {
  constructor(said: string) {
    super(`the builder of the image ended: ${said || 'it said nothing'}`)
    this.name = 'BuilderLost'
  }
}

/**
 * A container that fills the filesystem of an image: without a network, with user IDs, memory and processes of its own, so
 * that neither a layer nor the scripts of a package run as root of the machine. See `guest/images/builder.py`.
 */
export class Builder {
  /** Process ID of its first process, whose user namespace the filesystem is mounted with. */
  readonly pid: number
  readonly #channel: Duplex
  readonly #stderr: () => string
  readonly #undo: Cleanup
  #text = ''
  readonly #lines: string[] = []
  #wake: () => void = () => undefined
  #ended = false

  private constructor(pid: number, channel: Duplex, stderr: () => string, undo: Cleanup) {
    this.pid = pid
    this.#channel = channel
    this.#stderr = stderr
    this.#undo = undo.keep()
    channel.on('data', (chunk: Buffer) => this.#receive(chunk))
    channel.on('close', () => this.#end())
    channel.on('end', () => this.#end())
    channel.resume()
  }

  /**
   * Starts one.
   * @param dock where `image`, the filesystem to fill, is attached before the first request.
   * @param packages directory with packages to install.
   */
  static async start(machine: BuilderMachine, dock: SlotDock, packages?: string): Promise<Builder> {
    const id = newId('slot')
    const undo = new Cleanup()
    try {
      const ids = machine.ids.lease()
      const cgroup = machine.cgroups.create(id)
      undo.add(async () => {
        cgroup.kill()
        await cgroup.remove()
        ids.release()
      })
      cgroup.limitRun(limits)
      const devicesDir = join(machine.devicesDir, id)
      const spec = {
        slotRoot: machine.builderRoot,
        arch: process.arch,
        openFilesMax: machine.openFilesMax,
        devicesDir,
        dockDir: dock.dir,
        ...(packages !== undefined && { packages }),
      }
      const bundle = join(machine.bundlesDir, id)
      mkdirSync(bundle, { recursive: true, mode: 0o700 })
      undo.add(() => rmSync(bundle, { recursive: true, force: true }))
      writeFileSync(join(bundle, 'config.json'), JSON.stringify(toBuilderConfig(spec, ids, cgroup)))
      undo.add(() => machine.runtime.delete(id))
      undo.add(() => cgroup.kill())
      const container = await withSlotDevices(devicesDir, () => machine.runtime.run(bundle, id))
      await cgroup.moveToRun(container.pid)
      if (!cgroup.holds(container.pid)) throw new Error('the kernel does not show the builder under its limits')
      const builder = new Builder(container.pid, container.channel, container.stderr, undo)
      await builder.#nextLine() // It is ready.
      return builder
    } catch (error) {
      await undo.run()
      throw error
    }
  }

  /**
   * Unpacks one layer.
   * @param source its archive, which may be compressed.
   * @param mostBytes limit on its size after decompression.
   */
  async layer(source: AsyncIterable<Uint8Array>, mostBytes: number): Promise<BuilderAnswer> {
    await this.#send('J', Buffer.from(JSON.stringify({ do: 'layer', most: mostBytes })))
    for await (const piece of source) {
      for (let at = 0; at < piece.length; at += pieceBytes) await this.#send('D', piece.subarray(at, at + pieceBytes))
    }
    await this.#send('E', new Uint8Array())
    return this.#answer()
  }

  /** Installs all packages. @param first file names of the essential ones. @param progress called with each step. */
  async install(first: readonly string[], progress: (step: string) => void): Promise<BuilderAnswer> {
    await this.#send('J', Buffer.from(JSON.stringify({ do: 'packages', first })))
    return this.#answer(progress)
  }

  /** Gives the root directory of the image its owner and mode. */
  async finish(): Promise<void> {
    await this.#send('J', Buffer.from(JSON.stringify({ do: 'finish' })))
    await this.#answer()
  }

  /** Ends its channel, so that what waits for it fails. */
  stop(): void {
    this.#channel.destroy()
  }

  /** Kills it. Idempotent. */
  async close(): Promise<void> {
    this.#channel.destroy()
    await this.#undo.run()
  }

  async #answer(progress?: (step: string) => void): Promise<BuilderAnswer> {
    for (;;) {
      const said = JSON.parse(await this.#nextLine()) as Record<string, unknown>
      if (typeof said.progress !== 'string') return toAnswer(said)
      progress?.(said.progress)
    }
  }

  async #send(kind: 'J' | 'D' | 'E', payload: Uint8Array): Promise<void> {
    if (this.#ended) throw new BuilderLost(this.#stderr())
    const head = Buffer.alloc(5)
    head.write(kind, 0, 'latin1')
    head.writeUInt32BE(payload.length, 1)
    this.#channel.write(head)
    if (this.#channel.write(payload)) return
    await new Promise<void>((resolve) => {
      const wake = () => {
        this.#channel.off('drain', wake).off('close', wake)
        resolve()
      }
      this.#channel.on('drain', wake).on('close', wake)
    })
  }

  async #nextLine(): Promise<string> {
    for (;;) {
      const line = this.#lines.shift()
      if (line !== undefined) return line
      if (this.#ended) throw new BuilderLost(this.#stderr())
      await new Promise<void>((resolve) => (this.#wake = resolve))
    }
  }

  #receive(chunk: Buffer): void {
    this.#text += chunk.toString('latin1')
    const lines = this.#text.split('\n')
    this.#text = lines.pop() ?? ''
    this.#lines.push(...lines)
    if (this.#text.length > lineBytesMax || this.#lines.length > 1000) this.#channel.destroy()
    this.#wake()
  }

  #end(): void {
    this.#ended = true
    this.#wake()
  }
}

const errors = ['full', 'invalid', 'failed', 'zstd_missing'] as const

function toAnswer(said: Record<string, unknown>): BuilderAnswer {
  const text = (name: string) => (typeof said[name] === 'string' ? said[name] : '')
  const number = (name: string) => (Number.isSafeInteger(said[name]) ? (said[name] as number) : 0)
  return {
    error: said.error === undefined ? undefined : (errors.find((error) => error === said.error) ?? 'failed'),
    detail: text('detail').slice(0, 4000),
    diffId: text('diff_id'),
    entries: number('entries'),
    devices: number('devices'),
    xattrs: number('xattrs'),
    owners: number('owners'),
  }
}
