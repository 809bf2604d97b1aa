import { type Problem, places, type Tree } from './tree.ts'

/** Phrases that a reader would not search for, with the standard word to use instead. */
const phrases: Readonly<Record<string, string>> = {
  'told|tells': 'report, return, send',
  'go(?:es)? on by itself': 'continue in the background',
  'mend(?:s|ed)?': 'fix',
  whoever: 'the caller, any client',
  'nobody(?!:)': 'no caller, no process',
  '(?:come|comes) again': 'retry',
  'asked for': 'request',
  'of itself': '(leave it out)',
  'stands? beside': 'be stored with',
  'is none': 'there is no, does not exist',
  'stands in the way': 'prevent',
  'gives? word': 'report',
  '(?:is|are) good (?:once|for)': 'can be used once',
  'for good': 'permanently',
  'of ours': '(name it)',
  'can be had': 'is available',
  'the other way round': 'conversely, the inverse',
}

const pattern = new RegExp(`\\b(?:${Object.keys(phrases).join('|')})\\b`, 'gi')

/** Files whose text people or models read, by the part of the tree that they are counted under. */
function partOf(path: string): string | undefined {
  if (/^src\/.*\.(?:ts|c|h)$/.test(path))
    return path
      .split('/')
      .slice(0, path.split('/').length > 2 ? 2 : 1)
      .join('/')
  if (/^(?:guest|docs)\/.*\.(?:md|c|h|py|js|mjs)$/.test(path)) return path.split('/')[0]
  if (/^test\/(?!house\/).*\.test\.ts$/.test(path)) return 'test'
  return /^[A-Z]+\.md$/.test(path) ? 'root' : undefined
}

/** The part of a line that the rule reads: of tests only the titles, of other files everything. */
const isRead = (path: string, line: string): boolean =>
  !path.startsWith('test/') || /^\s*(?:it|describe|test)\b|^\s*\]?\)\(/.test(line)

/** The table of phrases to avoid in the style guide. */
const isExample = (path: string, line: string): boolean => path === 'CONTRIBUTING.md' && line.startsWith('| ')

/**
 * How many of the phrases each part of the tree may still contain. A number only ever decreases; a part that is not
 * listed may contain none.
 */
export const allowance: Readonly<Record<string, number>> = {}

/** Finds the phrases in parts of the tree that have more of them than their allowance. */
export function mannerisms(tree: Tree): Problem[] {
  const found = new Map<string, Problem[]>()
  for (const [path, text] of tree) {
    const part = partOf(path)
    if (part === undefined) continue
    const lines = text.split('\n')
    for (const { line, match } of places(text, pattern)) {
      const content = lines[line - 1]!
      if (!isRead(path, content) || isExample(path, content) || match[0] === 'is None') continue
      found.set(part, [
        ...(found.get(part) ?? []),
        { path, line, problem: `write "${plain(match[0])}", not "${match[0]}"` },
      ])
    }
  }
  return [...found].flatMap(([part, problems]) => (problems.length > (allowance[part] ?? 0) ? problems : []))
}

const plain = (phrase: string): string =>
  Object.entries(phrases).find(([words]) => new RegExp(`^(?:${words})$`, 'i').test(phrase))?.[1] ?? ''
