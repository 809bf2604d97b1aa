import { packagesBin } from '../../base/packages.ts'
import type { Language } from '../../base/run.ts'
import { homeDirectory } from '../../base/sandbox.ts'
import type { PrewarmMethod } from '../slots/guest-channel.ts'

/** A program for a jail to run, with its arguments, for the guest. */
export interface Command {
  argv: readonly string[]
  /** Name of the file in `codeDir` that holds the source text; absent: the program reads it from its standard input. */
  codeFile?: string
  /** Variables that its interpreter needs, and that the code does not see. */
  ownEnv?: Readonly<Record<string, string>>
  /** Whether an input that was not given is an empty pipe, as a process that waits for its run has it, or /dev/null. */
  hasInputPipe?: boolean
}

/** A language that this machine's image has. */
export interface LanguageFound {
  language: Language
  /** Of its interpreter, inside the image. */
  path: string
  /** As the interpreter prints it, e.g. `Python 3.11.2`. */
  version: string
  /** Whether a python cannot load the shared object of the product, because it has another C library. */
  isPlain?: boolean
}

export const home = homeDirectory
const codeDir = '/run/glovebox'

const usualPath = '/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin'
const ownBin = '/opt/glovebox/bin'

/** Where programs of an image are found. */
export const imagePath = `${ownBin}:${usualPath}`

/** Below the caller's own variables. */
export const fixedEnv: Readonly<Record<string, string>> = {
  PATH: `${ownBin}:${packagesBin}:${usualPath}`,
  HOME: home,
  USER: 'baponi',
  LOGNAME: 'baponi',
  SHELL: '/bin/bash',
  LANG: 'C.UTF-8',
  TZ: 'UTC',
  TMPDIR: '/tmp',
  TERM: 'dumb',
  // Every python below the program too, not just the one we start: what it printed before a timeout is there.
  PYTHONUNBUFFERED: '1',
  // A cached module is matched by the size and the second of its source: one that was rewritten within that second would
  // be imported as it was before. Packages that pip installs bring their bytecode.
  PYTHONDONTWRITEBYTECODE: '1',
  // There is no network, and a second attempt finds none either: they fail at once.
  PIP_RETRIES: '0',
  UV_HTTP_RETRIES: '0',
  CARGO_NET_RETRY: '0',
  // Packages from files are installed in the home directory, which does not affect those of the image.
  PIP_BREAK_SYSTEM_PACKAGES: '1',
  PIP_DISABLE_PIP_VERSION_CHECK: '1',
  npm_config_fetch_retries: '0',
  npm_config_update_notifier: 'false',
}

/**
 * Where the image that can has `guest/python/figures.py`, and what makes matplotlib show figures through it. A caller's own
 * MPLBACKEND wins.
 */
export const figuresDir = '/opt/glovebox/python'
export const figuresEnv: Readonly<Record<string, string>> = {
  MPLBACKEND: 'module://glovebox_figures',
  GLOVEBOX_IMAGES: '60', // IMAGES of guest/zygote-protocol.h
}

/** Where the image has `guest/node/prelude.cjs`, which node loads before the code of a run. */
export const preludePath = 'opt/glovebox/lib/prelude.cjs'

/** Where the image has the shared object that prepares a python interpreter for a run, and forks it. */
export const pythonZygotePath = 'opt/glovebox/lib/python-zygote.so'

interface Start {
  program: string
  /** Name of the file in `codeDir` that contains the source text. */
  codeFile: string
  /** What follows the program. @param file the path of that file. */
  args(file: string): readonly string[]
  versionArgs: readonly string[]
  /** Whether it can be started before its source text is known. */
  waits: boolean
}

/**
 * How each language is started: every program is a file, so that messages, debuggers and further processes find its
 * source. The file is not in the home directory, whose content belongs to the caller.
 */
const table: Record<Language, Start> = {
  python: {
    program: 'python3',
    codeFile: 'main.py',
    // -u: what was printed before a timeout is there.
    args: (file) => ['-u', file],
    versionArgs: ['--version'],
    waits: true,
  },
  node: {
    program: 'node',
    codeFile: 'main.js',
    // The prelude feeds it the file.
    args: () => ['--require', `/${preludePath}`, '-'],
    versionArgs: ['--print', '"Node.js " + process.version'],
    waits: true,
  },
  typescript: {
    program: 'node',
    codeFile: 'main.ts',
    // As node; the prelude removes the types.
    args: () => ['--require', `/${preludePath}`, '-'],
    versionArgs: ['--print', '"Node.js " + process.version'],
    waits: true,
  },
  bash: {
    program: 'bash',
    codeFile: 'main.sh',
    args: (file) => [file],
    versionArgs: ['-c', 'echo "bash $BASH_VERSION"'],
    waits: false,
  },
}

/** Whether a version of an interpreter can run the language: Node.js removes types since 22.13. */
export function supports(language: Language, version: string): boolean {
  if (language !== 'typescript') return true
  const [, major = 0, minor = 0] = (/v(\d+)\.(\d+)/.exec(version) ?? []).map(Number)
  return major > 22 || (major === 22 && minor >= 13)
}

/** @param env of the run. */
export function commandOf(
  { language, path, isPlain = false }: LanguageFound,
  env: Readonly<Record<string, string>>,
): Required<Command> {
  const { args, codeFile, waits } = table[language]
  const file = `${codeDir}/${codeFile}`
  const own = {
    LD_PRELOAD: [`/${pythonZygotePath}`, env.LD_PRELOAD].filter(Boolean).join(':'),
    GLOVEBOX_PROGRAM: file,
  }
  const ownEnv = language === 'python' && !isPlain ? own : {}
  return { argv: [path, ...args(file)], codeFile, ownEnv, hasInputPipe: waits && !isPlain }
}

const byteOrderMark = Buffer.of(0xef, 0xbb, 0xbf)

/**
 * Returns the source text as its interpreter takes it. Python and node read what Windows tools write, a byte order mark and
 * CRLF; bash takes them for parts of words. A text that ends only some of its lines so keeps them.
 */
export function sourceFor(language: Language, code: Uint8Array): Uint8Array {
  if (language !== 'bash') return code
  const bytes = Buffer.from(code.buffer, code.byteOffset, code.byteLength)
  const text = bytes.indexOf(byteOrderMark) === 0 ? bytes.subarray(byteOrderMark.length) : bytes
  if (!text.includes('\r\n')) return text
  const lines = text.toString('latin1').split('\n')
  const last = lines.pop() ?? ''
  if (!lines.every((line) => line.endsWith('\r'))) return text
  return Buffer.from([...lines.map((line) => line.slice(0, -1)), last].join('\n'), 'latin1')
}

/** How the interpreter of a jail that is made ahead comes about, and which runs it may then be given to. */
export interface PrewarmCommand extends Required<Command> {
  method: PrewarmMethod
  /** Whether a run with these variables of its own behaves there as in an interpreter of its own. */
  takes(env: Readonly<Record<string, string>>): boolean
}

/**
 * Variables that an interpreter, or a library that a host may have imported, reads once and early: a run that sets one
 * to anything else than every run has gets an interpreter of its own.
 */
const readEarly =
  /^(PYTHON|LC_|LANG|MALLOC_|OMP_|OPENBLAS_|GOTO_|MKL_|BLIS_|VECLIB_|NUMEXPR_|KMP_|OPENSSL_|SSL_|TZDIR$|TZPATH$|MPL|XDG_)/

/** Says to the prelude that the program is not there yet. */
const early = { GLOVEBOX_EARLY: '1' }

/**
 * @param env the variables that the next run is expected to have.
 * @param hosted whether the language has a host in the slot.
 * @returns undefined where nothing can be made ahead: bash does not wait for its program.
 */
export function prewarmCommandOf(
  found: LanguageFound,
  env: Readonly<Record<string, string>>,
  hosted: boolean,
): PrewarmCommand | undefined {
  if (!table[found.language].waits || (found.language === 'python' && !hosted)) return undefined
  const command = commandOf(found, env)
  if (!hosted) return { ...command, ownEnv: early, method: 'exec', takes: (other) => sameVariables(env, other) }
  const takes = (other: Readonly<Record<string, string>>) =>
    Object.entries(other).every(([name, value]) => !readEarly.test(name) || fixedEnv[name] === value)
  return { ...command, method: 'fork', takes }
}

function sameVariables(one: Readonly<Record<string, string>>, other: Readonly<Record<string, string>>): boolean {
  const names = Object.keys(one)
  return names.length === Object.keys(other).length && names.every((name) => one[name] === other[name])
}

/** The interpreter of a language as a host: forked for each run. @param env of every run. @returns undefined where a language has none. */
export function zygoteCommandOf(
  found: LanguageFound,
  preload: readonly string[],
  env: Readonly<Record<string, string>>,
): { argv: readonly string[]; env: Record<string, string> } | undefined {
  if (found.language !== 'python' || found.isPlain) return undefined
  const { argv, ownEnv } = commandOf(found, {})
  const oneThread = Object.fromEntries(
    ['OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS', 'NUMEXPR_NUM_THREADS'].map((name) => [name, '1']),
  )
  return {
    argv,
    // What is imported must leave no thread behind: a fork has only the one that forks.
    env: { ...env, ...oneThread, ...ownEnv, GLOVEBOX_PRELOAD: preload.join(',') },
  }
}

/** Where images have the program of the Python kernel. */
const pythonKernel = '/opt/glovebox/kernels/python/main.py'

/**
 * The interpreter from which the first Python kernel of a sandbox is forked. It starts as that would, and takes over the
 * arguments and variables of the kernel later. @param env variables of the image.
 * @returns undefined where there is no such interpreter.
 */
export function spareCommandOf(
  languages: readonly LanguageFound[],
  env: Readonly<Record<string, string>>,
): { argv: readonly string[]; env: Record<string, string> } | undefined {
  const python = languages.find(({ language, isPlain }) => language === 'python' && !isPlain)
  if (python === undefined) return undefined
  const own = { LD_PRELOAD: `/${pythonZygotePath}`, GLOVEBOX_PROGRAM: pythonKernel, GLOVEBOX_SPARE: '1' }
  return { argv: [python.path, pythonKernel, '0', 'python'], env: { ...env, ...own } }
}

/**
 * The command lines to try, in order, to learn whether and where an image has a language; each prints its version.
 * @param searched the PATH of the image.
 */
export function versionCommands(language: Language, searched = imagePath): { path: string; argv: string[] }[] {
  const { program, versionArgs } = table[language]
  return searched.split(':').map((dir) => ({ path: `${dir}/${program}`, argv: [`${dir}/${program}`, ...versionArgs] }))
}
