/** Everyday programs, each of which prints the same in a sandbox as on the machine itself. */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Language } from '../../src/base/run.ts'

export interface Program {
  language: Language
  /** What it does, unique in its language. */
  does: string
  code: string
  /** Why this machine cannot run it; absent if it can. */
  missing?: string
}

const directory = join(import.meta.dirname, 'corpus')

/** A file of the corpus holds programs of one language, each below `### what it does [python:module]` or `[cmd:program]`. */
const heading = /^### (.+?)(?: \[(python|cmd):([\w.+-]+)\])?$/m

export function readCorpus(): Program[] {
  return readdirSync(directory).flatMap((name) => {
    const language = name.replace(/[-.].*/, '') as Language
    const [, ...parts] = readFileSync(join(directory, name), 'utf8').split(heading)
    return Array.from({ length: parts.length / 4 }, (_, n): Program => {
      const [does = '', kind, needed = '', code = ''] = parts.slice(n * 4, n * 4 + 4)
      const missing = kind !== undefined && !isThere(kind, needed) ? `${needed} is not installed` : undefined
      return { language, does, code: code.slice(1), ...(missing && { missing }) }
    })
  })
}

const known = new Map<string, boolean>()

/** Whether the image, which is /usr of this machine, has a module or a program. */
function isThere(kind: string, name: string): boolean {
  const key = `${kind}:${name}`
  if (!known.has(key)) known.set(key, look(kind, name))
  return known.get(key) === true
}

function look(kind: string, name: string): boolean {
  const [program, ...words] =
    kind === 'python'
      ? ['/usr/bin/python3', '-c', 'import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)', name]
      : ['/usr/bin/env', 'PATH=/usr/bin:/bin', 'sh', '-c', 'command -v "$0"', name]
  try {
    execFileSync(program as string, words, { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}
