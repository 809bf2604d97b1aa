import { PassThrough, Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type { ProcessIo } from '../../src/cli/process-io.ts'

export interface Outcome {
  code: number
  stdout: Buffer
  stderr: string
}

interface Surroundings {
  /** Standard input, which ends after it. */
  stdin?: string | Buffer | Readable
  env?: Record<string, string>
  stop?: AbortSignal
  /** Outputs that are terminals. */
  terminals?: readonly ('stdin' | 'stdout' | 'stderr')[]
  onStdout?: (text: string) => void
}

/** Calls a command with real streams instead of those of a process. */
export async function withCommandIo(
  command: (io: ProcessIo) => Promise<number>,
  { stdin = '', env = {}, stop = new AbortController().signal, terminals = [], onStdout }: Surroundings = {},
): Promise<Outcome> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const printed = [buffer(stdout), buffer(stderr)] as const
  if (onStdout) stdout.on('data', (bytes: Buffer) => onStdout(bytes.toString()))
  const isTerminal = (name: 'stdin' | 'stdout' | 'stderr') => ({ isTTY: terminals.includes(name) })
  const input = stdin instanceof Readable ? stdin : Readable.from([Buffer.from(stdin)])
  const code = await command({
    stdin: Object.assign(input, isTerminal('stdin')),
    stdout: Object.assign(stdout, isTerminal('stdout')),
    stderr: Object.assign(stderr, isTerminal('stderr')),
    env,
    self: ['node'],
    stop,
    onRepeatedSignal: () => undefined,
  })
  stdout.end()
  stderr.end()
  return { code, stdout: await printed[0], stderr: (await printed[1]).toString() }
}
