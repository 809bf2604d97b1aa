import type { Language } from '../src/base/run.ts'

/** A program for a sandbox, and its equivalent without one. */
export interface Program {
  /** Source code for a sandbox. */
  code: string
  /** The same as a command line. */
  argv: readonly [string, ...string[]]
  /** The output of that command line. */
  prints: string
}

/**
 * Python is compared with an interpreter that loads neither site nor user configuration: the minimum cost of a python
 * process. Node is the one that runs this benchmark, which is also the one in sandboxes.
 */
export const programs: Record<Language, Program> = {
  python: { code: 'print(1)', argv: ['/usr/bin/python3', '-I', '-c', 'pass'], prints: '' },
  node: { code: 'console.log(1)', argv: [process.execPath, '-e', 'console.log(1)'], prints: '1\n' },
  typescript: {
    code: 'const x: number = 1; console.log(x)',
    argv: [process.execPath, '-e', 'console.log(1)'],
    prints: '1\n',
  },
  bash: { code: 'echo 1', argv: ['/usr/bin/bash', '-c', 'echo 1'], prints: '1\n' },
}

/** Long enough to be measured while it runs. */
const holdS = 0.5

const holding: Record<Language, string> = {
  python: `import time; time.sleep(${holdS})`,
  node: `setTimeout(() => undefined, ${holdS * 1000})`,
  typescript: `setTimeout((): void => undefined, ${holdS * 1000})`,
  bash: `sleep ${holdS}; true`,
}

/** A program of each language that is idle for a while, to measure its memory. */
export function holdingProgram(language: Language): Program {
  const code = holding[language]
  const argv = [...programs[language].argv.slice(0, -1), code] as unknown as Program['argv']
  return { code, argv, prints: '' }
}
