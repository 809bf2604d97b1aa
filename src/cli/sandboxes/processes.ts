import type { Readable } from 'node:stream'
import { exitCodeOf } from '../../base/exit-codes.ts'
import { request, requestJson, type Server } from '../api-client.ts'
import { readLines } from '../lines.ts'
import { printJson } from '../output.ts'
import { interruptedCode, type OutputStream, type ProcessIo } from '../process-io.ts'
import { printable, TerminalText } from '../terminal.ts'

/** How a process of a sandbox ended, as the server describes it. */
export type Ending =
  | { kind: 'exited'; code: number }
  | { kind: 'signaled'; signal: string }
  | { kind: 'timed_out' | 'out_of_memory' | 'sandbox_ended' }
  | { kind: 'not_started'; reason: string }

export interface Process {
  process: number
  argv: string[]
  started_at: string
  ending: Ending | null
}

interface Line {
  type: 'stdout' | 'stderr' | 'gap' | 'ended' | 'heartbeat' | 'error'
  data_base64?: string
  ending?: Ending
  message?: string
}

/** The kept output of a process. */
export interface Output {
  stdout: string
  stderr: string
  omitted_bytes: number
  ending: Ending | null
}

/**
 * How the output of a process is written: as text, as bytes that control a terminal, as the lines of JSON that the server
 * streams, or not at all.
 */
export type Format = 'text' | 'raw' | 'lines' | 'none'

/** Follows a process to its end and writes its output. */
export async function followProcess(server: Server, path: string, io: ProcessIo, format: Format): Promise<Ending> {
  const query = format === 'lines' ? '' : '&encoding=base64'
  const response = await request(server, `${path}${query}`, { accept: 'application/x-ndjson', isCutOff: true })
  const outputs = { stdout: writerTo(io.stdout, format === 'raw'), stderr: writerTo(io.stderr, format === 'raw') }
  const writeLine = writerTo(io.stdout, true)
  for await (const text of readLines(response.body!)) {
    const line = JSON.parse(text) as Line
    if (format === 'lines') await writeLine(Buffer.from(`${printable(text, io.stdout)}\n`))
    if (line.type === 'error') throw new Error(line.message)
    if (line.type === 'ended' && line.ending) return line.ending
    if ((format === 'text' || format === 'raw') && (line.type === 'stdout' || line.type === 'stderr')) {
      await outputs[line.type](Buffer.from(line.data_base64 ?? '', 'base64'))
    }
  }
  throw new Error('the connection ended before the process')
}

/** Writes as fast as the output takes it. Only a shell may control the terminal. */
function writerTo(output: OutputStream, isRaw: boolean): (bytes: Buffer) => Promise<void> {
  const text = output.isTTY && !isRaw ? new TerminalText() : undefined
  return async (bytes) => {
    if (!output.write(text ? text.add(bytes) : bytes)) await new Promise((resolve) => output.once('drain', resolve))
  }
}

/**
 * Sends an input to a process until the input ends, and closes it then.
 * @returns a function that stops it.
 */
export function sendInput(
  server: Server,
  path: string,
  input: Readable,
  onError: (error: unknown) => void,
): () => void {
  let isStopped = false
  let sent: Promise<unknown> = Promise.resolve()
  const send = (body: object) => {
    sent = sent
      .then(() => (isStopped ? undefined : request(server, path, { body })))
      .catch((error: unknown) => {
        if (!isStopped) onError(error)
      })
  }
  const data = (bytes: Buffer) => send({ data_base64: Buffer.from(bytes).toString('base64') })
  const end = () => send({ close: true })
  input.on('data', data).on('end', end)
  return () => {
    isStopped = true
    input.off('data', data).off('end', end)
    input.pause()
  }
}

/** A program to start in a sandbox. */
export interface Started {
  command: string
  args: readonly string[]
  cwd?: string
  user?: string
  env_vars?: Readonly<Record<string, string>>
  terminal?: { columns: number; rows: number }
}

/**
 * Starts a process and follows it to its end, with the input of this command.
 * @param base path of the sandbox. @param suffix query that names its namespace.
 * @param how `json`: prints its output and ending as JSON when it has ended, instead of its output. `interactive`: passes on
 * the input of a terminal, which it gets anyway if it has one of its own.
 * @returns its exit code.
 */
export async function runAttached(
  server: Server,
  base: string,
  suffix: string,
  started: Started,
  io: ProcessIo,
  { json, interactive }: { json?: boolean | undefined; interactive?: boolean | undefined } = {},
): Promise<number> {
  const hasInput = started.terminal !== undefined || interactive === true || io.stdin.isTTY !== true
  const body = { ...started, stdin: hasInput }
  const { process } = await requestJson<Process>(server, `${base}/processes${suffix}`, { body })
  const path = `${base}/processes/${process}`
  const failures: unknown[] = []
  const stopInput = hasInput ? sendInput(server, `${path}/stdin${suffix}`, io.stdin, (e) => failures.push(e)) : () => {}
  const stopResizing = started.terminal ? followSize(server, `${path}/resize${suffix}`, io) : () => {}
  const isRaw = started.terminal !== undefined
  // Without this, keys would be edited and echoed twice, here and in the sandbox.
  if (isRaw) io.stdin.setRawMode?.(true)
  try {
    const output = `${path}/output${suffix}`
    const ending = await followProcess(server, output, io, json ? 'none' : isRaw ? 'raw' : 'text')
    if (json) await printEnded(server, output, io)
    return exitCodeOf(ending)
  } catch (error) {
    if (!io.stop.aborted) throw failures[0] ?? error
    await request({ ...server, stop: new AbortController().signal }, `${path}${suffix}`, { method: 'DELETE' })
    return interruptedCode(io.stop)
  } finally {
    if (isRaw) io.stdin.setRawMode?.(false)
    stopInput()
    stopResizing()
    const { ending } = await requestJson<Process>(server, `${path}${suffix}`).catch(() => ({ ending: null }))
    if (ending) await request(server, `${path}${suffix}`, { method: 'DELETE' }).catch(() => {})
  }
}

/** Prints what the server keeps of a process that has ended, in the form of a command that was waited for. */
async function printEnded(server: Server, path: string, io: ProcessIo): Promise<void> {
  const { ending, stdout, stderr, omitted_bytes } = await requestJson<Output>(server, path)
  const exit_code = ending && exitCodeOf(ending)
  printJson({ exit_code, success: exit_code === 0, ending, stdout, stderr, omitted_bytes }, io)
}

/** The size of the terminal of this command. */
export const sizeOf = ({ stdout }: ProcessIo): { columns: number; rows: number } => ({
  columns: Math.min(stdout.columns ?? 80, 1_000),
  rows: Math.min(stdout.rows ?? 24, 1_000),
})

function followSize(server: Server, path: string, io: ProcessIo): () => void {
  const resized = () => void request(server, path, { body: sizeOf(io) }).catch(() => {})
  io.stdout.on('resize', resized)
  return () => io.stdout.off('resize', resized)
}
