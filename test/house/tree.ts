import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'

/** Files of a repository: text by path, with `/` between the parts. */
export type Tree = ReadonlyMap<string, string>

export interface Problem {
  path: string
  /** Starts at 1; 0 means the whole file. */
  line: number
  problem: string
}

/** Maximum size of a text file, in bytes. Larger files are data; binary files contain a zero byte. */
const maxTextBytes = 1024 * 1024

/** Reads all committed and untracked files; in a copy without Git, all files. */
export function readTree(root: string): Tree {
  const paths = existsSync(join(root, '.git')) ? committed(root) : walk(root, '')
  const tree = new Map<string, string>()
  for (const path of paths) {
    const file = join(root, path)
    if (!existsSync(file) || !statSync(file).isFile() || statSync(file).size > maxTextBytes) continue
    const text = readFileSync(file, 'utf8')
    if (!text.includes('\0')) tree.set(path, text)
  }
  return tree
}

function committed(root: string): string[] {
  const list = execFileSync('git', ['-c', 'safe.directory=*', 'ls-files', '-z', '-co', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
  })
  return list.split('\0').filter((path) => path !== '')
}

function walk(root: string, under: string): string[] {
  const skipped = new Set(['.git', 'node_modules', 'build', '.glovebox'])
  return readdirSync(join(root, under), { withFileTypes: true }).flatMap((entry) => {
    if (skipped.has(entry.name)) return []
    const path = under === '' ? entry.name : `${under}/${entry.name}`
    return entry.isDirectory() ? walk(root, path) : [path]
  })
}

/** Yields each match of `pattern`, which has the flag g, with its line. */
export function* places(text: string, pattern: RegExp): Generator<{ line: number; match: RegExpMatchArray }> {
  let line = 1
  let at = 0
  for (const match of text.matchAll(pattern)) {
    for (; at < match.index; at++) if (text[at] === '\n') line++
    yield { line, match }
  }
}
