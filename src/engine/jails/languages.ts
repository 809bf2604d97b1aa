import type { Language } from '../../base/run.ts'
import type { PrewarmMethod } from '../slots/guest-channel.ts'

/** A program for a jail to run, as words for the guest. */
export interface Command {
  argv: readonly string[]
  /** Name of the file in `codeDir` that holds the source text; absent: the program reads it from its standard input. */
  codeFile?: string
}

/** A language that this machine's image has. */
export interface LanguageFound {
  language: Language
  /** Of its interpreter, inside the image. */
  path: string
  /** As the interpreter prints it, e.g. `Python 3.11.2`. */
  version: string
}

export const home = '/home/baponi'
const codeDir = '/run/glovebox'

/** Where programs are found inside. */
export const imagePath = '/opt/glovebox/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin'

/** Below the caller's own variables. */
export const fixedEnv: Readonly<Record<string, string>> = {
  PATH: imagePath,
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

/**
 * How each language is started. Python and node read the source from standard input when that is free: their messages
 * then say `<stdin>` and `[stdin]` with the user's own line numbers. A shell cannot: its commands would eat the script.
 */
const table: Record<
  Language,
  { program: string; command(path: string, stdinGiven: boolean): Command; versionArgs: readonly string[] }
> = {
  python: {
    program: 'python3',
    versionArgs: ['--version'],
    // -u: what was printed before a timeout is there.
    command: (path, stdinGiven) =>
      stdinGiven ? { argv: [path, '-u', `${codeDir}/main.py`], codeFile: 'main.py' } : { argv: [path, '-u', '-'] },
  },
  node: {
    program: 'node',
    versionArgs: ['--print', '"Node.js " + process.version'],
    command: (path, stdinGiven) => {
      const argv = [path, '--require', `/${preludePath}`]
      return stdinGiven ? { argv: [...argv, `${codeDir}/main.js`], codeFile: 'main.js' } : { argv: [...argv, '-'] }
    },
  },
  bash: {
    program: 'bash',
    versionArgs: ['-c', 'echo "bash $BASH_VERSION"'],
    command: (path) => ({ argv: [path, `${codeDir}/main.sh`], codeFile: 'main.sh' }),
  },
}

/** @param stdinGiven whether the caller gave a standard input, so that the source text needs another way in. */
export function commandOf({ language, path }: LanguageFound, stdinGiven: boolean): Command {
  return table[language].command(path, stdinGiven)
}

/** How the interpreter of a jail that is made ahead comes about, and which runs it may then be given to. */
export interface PrewarmCommand {
  method: PrewarmMethod
  argv: readonly string[]
  /** Whether a run with these variables of its own behaves there as in an interpreter of its own. */
  takes(env: Readonly<Record<string, string>>): boolean
}

/**
 * Variables that an interpreter, or a library that a host may have imported, reads once and early: a run that sets one
 * to anything else than every run has gets an interpreter of its own.
 */
const readEarly =
  /^(PYTHON|LC_|LANG|MALLOC_|OMP_|OPENBLAS_|GOTO_|MKL_|BLIS_|VECLIB_|NUMEXPR_|KMP_|OPENSSL_|SSL_|TZDIR$|TZPATH$|MPL|XDG_)/

/**
 * @param env the variables that the next run is expected to have.
 * @param hosted whether the language has a host in the slot.
 * @returns undefined where nothing can be made ahead: bash reads its program from a file, which is part of the jail.
 */
export function prewarmCommandOf(
  { language, path }: LanguageFound,
  env: Readonly<Record<string, string>>,
  hosted: boolean,
): PrewarmCommand | undefined {
  const { argv, codeFile } = table[language].command(path, false)
  if (codeFile !== undefined) return undefined
  if (!hosted) return { method: 'exec', argv, takes: (other) => sameVariables(env, other) }
  const takes = (other: Readonly<Record<string, string>>) =>
    Object.entries(other).every(([name, value]) => !readEarly.test(name) || fixedEnv[name] === value)
  return { method: 'fork', argv, takes }
}

function sameVariables(one: Readonly<Record<string, string>>, other: Readonly<Record<string, string>>): boolean {
  const names = Object.keys(one)
  return names.length === Object.keys(other).length && names.every((name) => one[name] === other[name])
}

/** Where the image has the shared object that makes an interpreter a host. */
export const pythonZygotePath = 'opt/glovebox/lib/python-zygote.so'

/** The interpreter of a language as a host: forked for each run. @param env of every run. @returns undefined where a language has none. */
export function zygoteCommandOf(
  { language, path }: LanguageFound,
  preload: readonly string[],
  env: Readonly<Record<string, string>>,
): { argv: readonly string[]; env: Record<string, string> } | undefined {
  if (language !== 'python') return undefined
  const oneThread = Object.fromEntries(
    ['OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS', 'NUMEXPR_NUM_THREADS'].map((name) => [name, '1']),
  )
  return {
    argv: table.python.command(path, false).argv,
    // What is imported must leave no thread behind: a fork has only the one that forks.
    env: { ...env, ...oneThread, LD_PRELOAD: `/${pythonZygotePath}`, GLOVEBOX_PRELOAD: preload.join(',') },
  }
}

/** The command lines to try, in order, to learn whether and where the image has a language; each prints its version. */
export function versionCommands(language: Language): { path: string; argv: string[] }[] {
  const { program, versionArgs } = table[language]
  return imagePath.split(':').map((dir) => ({ path: `${dir}/${program}`, argv: [`${dir}/${program}`, ...versionArgs] }))
}
