import { Refusal } from '../../base/errors.ts'
import type { SandboxFile } from '../../base/sandbox.ts'
import type { FrontLink } from '../front-link.ts'
import type { FromRunner } from '../protocol/messages.ts'
import type { ToSandboxFiles } from '../protocol/sandbox-messages.ts'
import { type FileFlow, type FileFlows, Reading, Writing } from '../storage/file-flows.ts'
import type { BuiltinRun } from './builtin-run.ts'
import { BadRecord, RecordReader, toChange, toFile } from './file-records.ts'
import type { Sandboxes } from './sandboxes.ts'

type Ask<Type extends ToSandboxFiles['type']> = Extract<ToSandboxFiles, { type: Type }>

/** What a front asks of the files of sandboxes. Memory is bounded by the windows, whatever the size of a file. */
export class SandboxFileRequests {
  readonly #sandboxes: Sandboxes
  readonly #link: FrontLink
  readonly #flows: FileFlows

  constructor(sandboxes: Sandboxes, flows: FileFlows, link: FrontLink) {
    this.#sandboxes = sandboxes
    this.#link = link
    this.#flows = flows
  }

  /** @returns the answer; `undefined` for `ok`, and `answered` where more than one message was sent. */
  async answer(message: ToSandboxFiles): Promise<FromRunner | 'answered' | undefined> {
    requirePath(message.path)
    const release = this.#sandboxes.useFiles(message.sandboxId)
    try {
      return await this.#answer(message)
    } catch (error) {
      if (!(error instanceof BadRecord)) throw error
      throw new Refusal('unavailable', { reason: 'the sandbox answered what no operation on files does' })
    } finally {
      this.#flows.delete(message.request)
      release()
    }
  }

  async #answer(message: ToSandboxFiles): Promise<FromRunner | 'answered' | undefined> {
    const { request, path } = message
    switch (message.type) {
      case 'sandbox_file_stat':
        return { type: 'sandbox_file_status', request, status: await statusOf(this.#run(message, 'stat', path), path) }
      case 'sandbox_file_list':
        return this.#list(message)
      case 'sandbox_file_read':
        return this.#read(message)
      case 'sandbox_file_write':
        return this.#write(message)
      case 'sandbox_file_make_directory':
        await this.#run(message, 'makeDirectory', path, octal(message.mode), message.parents ? 'parents' : '').done
        return undefined
      case 'sandbox_file_move':
      case 'sandbox_file_copy': {
        requirePath(message.to)
        const how = message.mayReplace ? 'replace' : ''
        await this.#run(message, message.type === 'sandbox_file_move' ? 'move' : 'copy', path, message.to, how).done
        return undefined
      }
      case 'sandbox_file_remove':
        await this.#run(message, 'remove', path, message.recursive ? 'recursive' : '').done
        return undefined
      case 'sandbox_file_watch':
        return this.#watch(message)
    }
  }

  #run(message: ToSandboxFiles, ...[builtin, ...argv]: [Parameters<Run>[0], ...string[]]): BuiltinRun {
    return this.#sandboxes.get(message.sandboxId).builtin(builtin, argv, message.user)
  }

  async #list(message: Ask<'sandbox_file_list'>): Promise<FromRunner> {
    const { request, path, cursor, limit } = message
    const after = cursor === undefined ? '' : Buffer.from(cursor, 'base64url').toString()
    // One more than requested shows whether there are more.
    const run = this.#run(message, 'list', path, after, String(Math.min(limit + 1, listMax)))
    const reader = new RecordReader()
    const entries: SandboxFile[] = []
    for await (const bytes of run.output) {
      reader.push(bytes)
      for (let record = reader.next(); record; record = reader.next())
        if (entries.length <= listMax) entries.push(toFile(record, { directory: path }))
    }
    await run.done
    const hasMore = entries.length > limit || (limit === listMax && entries.length === listMax)
    const page = entries.slice(0, limit)
    const last = page.at(-1)
    const next = hasMore && last ? Buffer.from(last.name).toString('base64url') : undefined
    return { type: 'sandbox_file_listing', request, entries: page, ...(next !== undefined && { cursor: next }) }
  }

  async #read(message: Ask<'sandbox_file_read'>): Promise<'answered'> {
    const { request, path, range } = message
    const [offset, length] = range ? [String(range.offset), String(range.lengthBytes)] : ['0', '']
    const reading = new Reading()
    this.#flows.set(request, reading)
    const run = this.#run(message, 'read', path, offset, length)
    const reader = new RecordReader()
    let status: SandboxFile | undefined
    let isOpened = false
    const open = () => {
      if (status === undefined || isOpened) return
      isOpened = true
      this.#link.send({ type: 'sandbox_file_opened', request, status })
    }
    for await (const bytes of run.output) {
      let content: Buffer = bytes
      if (status === undefined) {
        reader.push(bytes)
        const record = reader.next()
        if (record === undefined) continue
        status = toFile(record, { path })
        content = reader.rest()
      }
      if (content.length === 0) continue
      // Not before: a file that opens and cannot be read is refused.
      open()
      if (!(await reading.credit.spend(content.length))) break // Leaving the loop ends the process.
      await this.#link.sendLarge({ type: 'files_bytes', request }, content)
    }
    if (reading.stopped) return 'answered'
    await run.done
    open()
    this.#link.send({ type: 'files_end', request })
    return 'answered'
  }

  async #write(message: Ask<'sandbox_file_write'>): Promise<FromRunner> {
    const { request, path, append, mode, makeParents } = message
    const writing = new Writing((bytes) => this.#link.send({ type: 'files_room', request, bytes }))
    this.#flows.set(request, writing)
    const how = [octal(mode), append ? 'append' : '', makeParents ? 'parents' : '']
    const run = this.#run(message, 'write', path, ...how)
    // An error of the operation wakes a writer that waits for more to arrive.
    run.done.catch((error: unknown) => {
      if (error instanceof Refusal) writing.refuse(error)
      else writing.stop()
    })
    let bytes = 0
    try {
      for await (const piece of writing.bytes()) {
        await run.write(piece)
        bytes += piece.length
      }
    } catch (error) {
      run.kill()
      throw error
    }
    run.closeInput()
    await run.done
    return { type: 'files_written', request, bytes }
  }

  async #watch(message: Ask<'sandbox_file_watch'>): Promise<'answered'> {
    const { request, path, recursive } = message
    const run = this.#run(message, 'watch', path, recursive ? 'recursive' : '')
    const stopping = new Stopping(() => run.kill())
    this.#flows.set(request, stopping)
    const reader = new RecordReader()
    for await (const bytes of stopping.ending(run.output)) {
      reader.push(bytes)
      for (let record = reader.next(); record; record = reader.next()) {
        const change = toChange(record)
        if (change === undefined) this.#link.send({ type: 'ok', request })
        else await this.#link.sendLarge({ type: 'sandbox_file_changed', request, change })
      }
    }
    this.#link.send({ type: 'files_end', request })
    return 'answered'
  }
}

type Run = (
  builtin: 'stat' | 'list' | 'read' | 'write' | 'makeDirectory' | 'move' | 'copy' | 'remove' | 'watch',
) => void

/** Entries of one page, which is what the operation gives at most. */
const listMax = 1_000

const octal = (mode: number | undefined): string => (mode === undefined ? '' : mode.toString(8))

/** @throws Refusal path_invalid for what no path can be. */
function requirePath(path: string): void {
  if (path === '') throw new Refusal('path_invalid', { problem: 'is empty' })
  if (path.includes('\0')) throw new Refusal('path_invalid', { problem: 'holds a NUL character' })
  if (Buffer.byteLength(path) > pathMaxBytes) throw new Refusal('path_invalid', { problem: 'is too long' })
}

/** Of the kernel (PATH_MAX), with room for a name beside the file. */
const pathMaxBytes = 4_000

async function statusOf(run: BuiltinRun, path: string): Promise<SandboxFile> {
  const reader = new RecordReader()
  for await (const bytes of run.output) reader.push(bytes)
  await run.done
  const record = reader.next()
  if (record === undefined) throw new BadRecord()
  return toFile(record, { path })
}

/** A watch, which its reader ends. */
class Stopping implements FileFlow {
  readonly #kill: () => void
  #isStopped = false

  constructor(kill: () => void) {
    this.#kill = kill
  }

  take(): void {
    // Nothing is sent about a watch.
  }

  stop(): void {
    this.#isStopped = true
    this.#kill()
  }

  /** The end that `stop` causes is no error. */
  async *ending<T>(values: AsyncIterable<T>): AsyncGenerator<T, void, undefined> {
    try {
      yield* values
    } catch (error) {
      if (!this.#isStopped) throw error
    }
  }
}
