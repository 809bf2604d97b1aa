import type { Language } from '../src/base/run.ts'

/** What is run, and how a machine without us would run it. */
export interface Program {
  /** Source text for a sandbox. */
  code: string
  /** The same as a command line. */
  argv: readonly [string, ...string[]]
  /** What that command line prints. */
  prints: string
}

/**
 * Python is measured against an interpreter that does nothing at all, without site and user configuration: the least
 * that a process of it can cost. Node is the one that runs this, which is the one that sandboxes have.
 */
export const programs: Record<Language, Program> = {
  python: { code: 'print(1)', argv: ['/usr/bin/python3', '-I', '-c', 'pass'], prints: '' },
  node: { code: 'console.log(1)', argv: [process.execPath, '-e', 'console.log(1)'], prints: '1\n' },
  bash: { code: 'echo 1', argv: ['/usr/bin/bash', '-c', 'echo 1'], prints: '1\n' },
}

/** Long enough to be looked at while it goes on. */
const holdS = 0.5

const holding: Record<Language, string> = {
  python: `import time; time.sleep(${holdS})`,
  node: `setTimeout(() => undefined, ${holdS * 1000})`,
  bash: `sleep ${holdS}; true`,
}

/** A program of each language that does nothing for a while: what it takes to have one is what is looked at. */
export function holdingProgram(language: Language): Program {
  const code = holding[language]
  const argv = [...programs[language].argv.slice(0, -1), code] as unknown as Program['argv']
  return { code, argv, prints: '' }
}
