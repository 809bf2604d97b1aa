/**
 * Every program is a file outside of its home. A program that asks for its own file, to find what lies beside it or to start
 * itself again, is also a file in its home while it runs, under a reserved name: `dirname(__file__)` is the home then.
 */
import type { Language } from './run.ts'

/** In the home directory. `guest/python/own-file.c` and `guest/node/prelude.cjs` use the same names. */
export const programCopies: Record<Language, string> = {
  python: '.glovebox-main.py',
  node: '.glovebox-main.js',
  typescript: '.glovebox-main.ts',
  bash: '.glovebox-main.sh',
}

/** How a program asks for its own file. The interpreters of Python and Node.js decide by the same words. */
const questions: Record<Language, RegExp> = {
  python: /__file__|argv\[0\]/,
  node: /__filename|\bimport\s*\.\s*meta\b|\bargv\s*\[\s*1\s*\]/,
  typescript: /__filename|\bimport\s*\.\s*meta\b|\bargv\s*\[\s*1\s*\]/,
  bash: /BASH_SOURCE|\$0\b|\$\{0\b/,
}

/** In a shell, `$0` between single quotes belongs to another program, such as awk. */
const singleQuoted = /'[^']*'/g

/** Returns whether a program asks for its own file. */
export function asksForItsFile(language: Language, code: Uint8Array): boolean {
  const text = Buffer.from(code.buffer, code.byteOffset, code.byteLength).toString('latin1')
  return questions[language].test(language === 'bash' ? text.replace(singleQuoted, '') : text)
}
