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
