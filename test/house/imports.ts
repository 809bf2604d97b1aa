import { dirname, posix } from 'node:path'
import { importLimits, importTable, packageTable, topFiles } from './import-table.ts'
import { type Problem, places, type Tree } from './tree.ts'

interface Import {
  path: string
  line: number
  specifier: string
  /** Path in the tree where the specifier is a relative one. */
  target: string | undefined
}

const importPattern = /(?:\bfrom|\bimport)\s*\(?\s*['"]([^'"\n]+)['"]/g

/** The room of a file under src/; `undefined` for a file that stands in none. */
export function roomOf(path: string): string | undefined {
  const top = topFiles[path]
  if (top) return top
  const [src, room, ...rest] = path.split('/')
  return src === 'src' && room && rest.length > 0 ? room : undefined
}

function* importsOf(tree: Tree): Generator<Import> {
  for (const [path, text] of tree) {
    if (!path.startsWith('src/') || !path.endsWith('.ts')) continue
    for (const { line, match } of places(text, importPattern)) {
      const specifier = match[1] ?? ''
      const target = specifier.startsWith('.') ? posix.join(dirname(path), specifier) : undefined
      yield { path, line, specifier, target }
    }
  }
}

/** Imports that the table does not allow, and files that stand in no room. */
export function brokenEdges(tree: Tree): Problem[] {
  const problems: Problem[] = []
  for (const path of tree.keys()) {
    if (!path.startsWith('src/') || !path.endsWith('.ts')) continue
    const room = roomOf(path)
    if (!room || !importTable[room]) problems.push({ path, line: 0, problem: 'stands in no room of the import table' })
  }
  for (const { path, line, specifier, target } of importsOf(tree)) {
    if (!target) continue
    const from = roomOf(path) ?? ''
    const to = roomOf(target)
    if (to === undefined) problems.push({ path, line, problem: `imports ${specifier}, which is in no room` })
    else if (from !== to && !importTable[from]?.[to])
      problems.push({ path, line, problem: `${from} may not import ${to}` })
    const limit = importLimits.find((each) => each.from === from && each.to === to)
    if (limit && !limit.files.includes(target)) {
      problems.push({ path, line, problem: `${from} may not import ${target}: ${limit.reason}` })
    }
  }
  return problems
}

/** Packages imported outside their place. */
export function strayPackages(tree: Tree): Problem[] {
  const problems: Problem[] = []
  for (const { path, line, specifier, target } of importsOf(tree)) {
    if (target || specifier.startsWith('node:')) continue
    const name = specifier
      .split('/')
      .slice(0, specifier.startsWith('@') ? 2 : 1)
      .join('/')
    const place = packageTable[name]
    const room = roomOf(path) ?? ''
    if (!place) problems.push({ path, line, problem: `${name} is not in the package table` })
    else if (!place.rooms.includes(room)) {
      problems.push({ path, line, problem: `${room} may not import ${name}: ${place.reason}` })
    }
  }
  return problems
}

/** Rooms that import each other, directly or around corners. */
export function roomCycles(tree: Tree): Problem[] {
  const edges = new Map<string, Map<string, Import>>()
  for (const each of importsOf(tree)) {
    const from = roomOf(each.path)
    const to = each.target && roomOf(each.target)
    if (!from || !to || from === to) continue
    const targets = edges.get(from) ?? new Map<string, Import>()
    if (!targets.has(to)) targets.set(to, each)
    edges.set(from, targets)
  }
  const problems: Problem[] = []
  for (const room of edges.keys()) {
    const cycle = pathBack(edges, room, [room])
    // Each cycle is told once: by its first room in the alphabet.
    if (!cycle || [...cycle].sort()[0] !== room) continue
    const first = edges.get(room)?.get(cycle[1] ?? '')
    problems.push({ path: first?.path ?? '', line: first?.line ?? 0, problem: `cycle: ${cycle.join(' → ')}` })
  }
  return problems
}

function pathBack(edges: Map<string, Map<string, Import>>, goal: string, soFar: string[]): string[] | undefined {
  for (const next of edges.get(soFar.at(-1) ?? '')?.keys() ?? []) {
    if (next === goal) return [...soFar, goal]
    if (soFar.includes(next)) continue
    const found = pathBack(edges, goal, [...soFar, next])
    if (found) return found
  }
  return undefined
}
