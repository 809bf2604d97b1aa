import type { ProcessStatus } from '../../../base/sandbox.ts'
import { type Call, type KernelLanguage, kernelLanguages } from './calls.ts'
import { encodeFrame } from './frames.ts'

/** Where images have the directory guest/kernels. */
export const kernelsDir = '/opt/glovebox/kernels'

/** How the kernel of a language is started, and how it takes a call. */
interface Program {
  /** The ID of the context becomes the last argument, which identifies the process after a restart of the front. */
  argv(dir: string, context: Omit<ContextName, 'language'>): string[]
  /** Whether SIGINT reaches the code; otherwise a frame does. */
  isInterruptedBySignal: boolean
  encode(call: Call, nonce: string): Buffer
}

/** Follows the number of calls of a context that keeps files as well. */
const withFiles = '+files'

const asJson = (call: Call, nonce: string): Buffer => {
  const { code, env, stdin, language } = call
  const request = {
    code,
    ...(env && { env }),
    ...(stdin && { stdin: Buffer.from(stdin).toString('base64') }),
    ...(language === 'typescript' && { typescript: true }),
  }
  return encodeFrame('call', nonce, Buffer.from(JSON.stringify(request)))
}

/** Quotes a text for a shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/** A line of a shell without a newline, so that line numbers in messages are those of the code. */
const bashLoop = (dir: string): string =>
  [
    `__glovebox_file=${quoted(`${dir}/bash/kernel.sh`)}`,
    'eval "$(<"$__glovebox_file")"',
    'while :; do while __glovebox_next; do eval "$__glovebox_line"; __glovebox_end $?; done; done',
  ].join('; ')

function asShell({ code, env = {}, stdin }: Call, nonce: string): Buffer {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${quoted(value)}`)
  const input = stdin && Buffer.from(stdin).toString('latin1').replaceAll('\\', '\\\\').replaceAll('\0', '\\0000')
  return Buffer.concat([
    ...(variables.length > 0 ? [encodeFrame('env', nonce, Buffer.from(variables.join(' ')))] : []),
    ...(input !== undefined ? [encodeFrame('stdin', nonce, Buffer.from(input, 'latin1'))] : []),
    encodeFrame('call', nonce, Buffer.from(code)),
  ])
}

export const programs: Readonly<Record<KernelLanguage, Program>> = {
  python: {
    argv: (dir, { id, rewind, files }) => [
      'python3',
      `${dir}/python/main.py`,
      `${rewind}${files ? withFiles : ''}`,
      id,
    ],
    isInterruptedBySignal: true,
    encode: asJson,
  },
  node: {
    argv: (dir, { id }) => ['node', '--expose-internals', `${dir}/node/main.cjs`, id],
    isInterruptedBySignal: false,
    encode: asJson,
  },
  bash: {
    argv: (dir, { id }) => ['bash', '--norc', '--noprofile', '-c', bashLoop(dir), 'bash', id],
    isInterruptedBySignal: true,
    encode: asShell,
  },
}

/** The context that a process of a sandbox is the kernel of, by its command line; undefined for other processes. */
export function contextOf({ argv }: Pick<ProcessStatus, 'argv'>, dir: string): ContextName | undefined {
  const id = argv.at(-1) ?? ''
  const rewind = Number.parseInt(argv[2] ?? '', 10)
  const files = argv[2]?.endsWith(withFiles) ?? false
  const isKernel = (language: KernelLanguage) => {
    const expected = programs[language].argv(dir, { id, rewind, files })
    return expected.length === argv.length && expected.every((word, index) => word === argv[index])
  }
  const language = kernelLanguages.find(isKernel)
  return language && { id, language, ...(language === 'python' ? { rewind, files } : { rewind: 0, files: false }) }
}

export interface ContextName {
  id: string
  language: KernelLanguage
  /** Number of calls that can be rewound. */
  rewind: number
  /** Whether files can be as well. */
  files: boolean
}
