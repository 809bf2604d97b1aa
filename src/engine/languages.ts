import type { Language } from '../base/run.ts'

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
  /** As the interpreter tells it, e.g. `Python 3.11.2`. */
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

/** Where the image has `guest/prelude.cjs`, which node loads before the code of a run. */
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

/** The command lines to try, in order, to learn whether and where the image has a language; each prints its version. */
export function versionCommands(language: Language): { path: string; argv: string[] }[] {
  const { program, versionArgs } = table[language]
  return imagePath.split(':').map((dir) => ({ path: `${dir}/${program}`, argv: [`${dir}/${program}`, ...versionArgs] }))
}
