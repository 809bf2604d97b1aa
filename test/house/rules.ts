import { posix } from 'node:path'
import { importTable } from './import-table.ts'
import { brokenEdges, moduleCycles, strayPackages, valueCycles } from './imports.ts'
import { mannerisms } from './phrases.ts'
import { type Problem, places, type Tree } from './tree.ts'

/** Number of promises in docs/promises.md without a test. It only ever decreases. */
export const pendingPromises = 0

type Rule = (tree: Tree) => Problem[]

/** Every house rule, by the sentence that it verifies. */
export const rules: Readonly<Record<string, Rule>> = {
  'imports follow the table': brokenEdges,
  'each package is imported only by its modules': strayPackages,
  'modules do not import each other in a cycle': moduleCycles,
  'files do not import values of each other in a cycle': valueCycles,
  'text uses standard words': mannerisms,
  'tests are grouped by module': misplacedTests,
  'only main.ts uses the global process object': onText(
    /^src\/(?!main\.ts$).*\.ts$/,
    /\bprocess\s*\.\s*(env|argv|argv0|exit|exitCode|on|once|addListener|abort)\b|\}\s*=\s*process\b|['"](node:)?process['"]|\bprocess\s*\[/g,
    'uses the global process object',
  ),
  'only the files sqlite*.ts depend on SQLite': onText(
    /^src\/store\/(?!sqlite(?:-\w+)?\.ts$).*\.ts$/,
    /\bpragma\b|\bnode:sqlite\b|\bSqlite\w*|\b(?:datetime|strftime|json_extract|rowid|last_insert_rowid)\b/g,
    'depends on SQLite',
  ),
  'file names describe the content': forbiddenNames,
  'files have at most 350 lines': longFiles,
  'no test is marked as only or todo': onText(
    /^test\/.*\.ts$/,
    /\b(?:describe|it|test|suite)(?:\.\w+)*\.(?:only|todo)\b/g,
    'is marked as only or todo',
  ),
  'the code contains no TODO notes': onText(/./, /\b(?:TODO|FIXME|XXX|HACK)\b/g, 'a note for later'),
  'checks are not disabled without a reason': onText(
    /\.(ts|mjs)$/,
    // "as any other" is a sentence; a cast is followed by another cast at most.
    /@ts-(?:ignore|nocheck)|biome-ignore(?!.*: .{10})|\bas any\b(?! (?!as |satisfies )[a-z])|: any\b(?! [a-z])/g,
    'disables a check without a reason',
  ),
  'no file contains a path of one machine': onText(
    /./,
    /(?<![\w./-])\/(?:work|Users)\/|(?<![\w./-])\/home\/(?!baponi\b)[a-z]\w*\//g,
    'a path of one machine',
  ),
  'no file names a package registry': onText(
    /./,
    /\bregistry\s*=|\bregistry\.(?:npmjs|yarnpkg)\b|\bdeb\.debian\.org\b|\bpypi\.org\b|\bartifactory\b/gi,
    'names a registry',
  ),
  'the lockfile contains no download address': onText(
    /(^|\/)package-lock\.json$/,
    /"resolved"\s*:/g,
    'names an address',
  ),
  'every promise has a test': untestedPromises,
  'links and paths in documents exist': brokenReferences,
}

/** Files that contain the words that the rules reject. */
const isExempt = (path: string): boolean => path.startsWith('test/house/') || path === 'LICENSE'

function onText(paths: RegExp, pattern: RegExp, what: string): Rule {
  return (tree) =>
    [...tree]
      .filter(([path]) => paths.test(path) && !isExempt(path))
      .flatMap(([path, text]) =>
        [...places(text, pattern)].map(({ line, match }) => ({ path, line, problem: `${what}: ${match[0].trim()}` })),
      )
}

const sourceFile = /^(?:src|test|guest|setup|bench)\/.*\.(?:ts|mjs|js|c|h|py|sh)$/

function forbiddenNames(tree: Tree): Problem[] {
  const vague = /^(?:utils?|helpers?|managers?|services?|types?|common|misc|index|shared)$/
  return [...tree.keys()].flatMap((path) => {
    if (!sourceFile.test(path)) return []
    const name = posix.basename(path).replace(/\.(?:test\.ts|[a-z]+)$/, '')
    const words = name.split('-')
    const problems: Problem[] = []
    if (vague.test(name) || /^(?:utils?|helpers?|manager|service)$/.test(words.at(-1) ?? '')) {
      problems.push({ path, line: 0, problem: `"${name}" does not describe the content` })
    }
    if (!/^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(name)) problems.push({ path, line: 0, problem: 'is not kebab-case' })
    return problems
  })
}

/** Tables that grow with the product, with one row for each refusal or system call. */
const tables = ['src/base/refusals.ts', 'guest/seccomp-table.h']

function longFiles(tree: Tree): Problem[] {
  const maxLines = 350
  return [...tree].flatMap(([path, text]) => {
    const lines = text.split('\n').length - 1
    if (!/^(?:src|guest)\/.*\.(?:ts|c|h|py|cjs)$/.test(path) || lines <= maxLines || tables.includes(path)) return []
    return [{ path, line: 0, problem: `has ${lines} lines, more than ${maxLines}` }]
  })
}

/** Contract tests outside a module, and files among the tests that are not tests. */
function misplacedTests(tree: Tree): Problem[] {
  const modules = new Set([...Object.keys(importTable), 'guest'])
  return [...tree.keys()].flatMap((path) => {
    const [test, kind, module = '', ...rest] = path.split('/')
    if (test !== 'test' || !path.endsWith('.ts')) return []
    const isTest = path.endsWith('.test.ts')
    if (kind === 'contract' && isTest && !(modules.has(module) && rest.length === 1)) {
      return [{ path, line: 0, problem: 'is not in test/contract/<module>/' }]
    }
    const holdsTests = kind === 'contract' || kind === 'protocol' || kind === 'stories' || kind === 'security'
    if (holdsTests && !isTest && module !== 'attacks') {
      return [{ path, line: 0, problem: 'is not a test: move it to test/support/' }]
    }
    return kind === 'support' && isTest ? [{ path, line: 0, problem: 'is a test among the support files' }] : []
  })
}

const promisesPath = 'docs/promises.md'

function untestedPromises(tree: Tree): Problem[] {
  const text = tree.get(promisesPath) ?? ''
  const rows = [...places(text, /^\| *(\d+) *\|(.*)\| *`([^`]+)` *\| *(\w*) *\|$/gm)]
  const problem = (line: number, what: string): Problem => ({ path: promisesPath, line, problem: what })
  const problems = rows.flatMap(({ line, match }, index) => {
    const [, number, , test = '', status = ''] = match
    const found: Problem[] = []
    if (Number(number) !== index + 1) found.push(problem(line, `promise ${number} is in row ${index + 1}`))
    const exists = tree.has(test)
    if (status === 'held' && !exists) found.push(problem(line, `${test} does not exist`))
    if (status === 'pending' && exists) found.push(problem(line, `${test} exists: the promise is no longer pending`))
    if (status !== 'held' && status !== 'pending') found.push(problem(line, `"${status}" is neither held nor pending`))
    return found
  })
  const pending = rows.filter(({ match }) => match[4] === 'pending').length
  if (rows.length === 0) problems.push(problem(0, 'contains no promise'))
  if (pending !== pendingPromises)
    problems.push(problem(0, `${pending} pending promises instead of ${pendingPromises}`))
  const named = new Set(rows.map(({ match }) => match[3]))
  for (const path of tree.keys()) {
    if (/^test\/security\/.*\.test\.ts$/.test(path) && !named.has(path)) {
      problems.push({ path, line: 0, problem: 'is not named by a promise in docs/promises.md' })
    }
  }
  return problems
}

/** Relative links, and paths in backticks, of every Markdown page. */
function brokenReferences(tree: Tree): Problem[] {
  const folders = new Set([...tree.keys()].flatMap((path) => parents(path)))
  const exists = (path: string) => tree.has(path) || folders.has(path.replace(/\/$/, ''))
  return [...tree].flatMap(([path, text]) => {
    if (!path.endsWith('.md') || path.startsWith('test/house/')) return []
    const links = [...places(text, /\]\((?!https?:|mailto:|#)([^)\s#]+)[^)]*\)/g)].map(({ line, match }) => ({
      line,
      target: posix.join(posix.dirname(path), match[1] ?? ''),
    }))
    const named = [...places(text, /`((?:src|test|guest|setup|bench|bin|docs|\.ci)\/[\w./-]*)`/g)].map(
      ({ line, match }) => ({ line, target: match[1] ?? '' }),
    )
    return [...links, ...(path === promisesPath ? [] : named)]
      .filter(({ target }) => !exists(target))
      .map(({ line, target }) => ({ path, line, problem: `points to ${target}, which does not exist` }))
  })
}

function parents(path: string): string[] {
  const parts = path.split('/').slice(0, -1)
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'))
}
