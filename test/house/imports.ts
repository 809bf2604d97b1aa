import { dirname, posix } from 'node:path'
import { importLimits, importTable, packageTable, topFiles } from './import-table.ts'
import { type Problem, places, type Tree } from './tree.ts'

interface Import {
  path: string
  line: number
  specifier: string
  /** Path in the tree, for a relative specifier. */
  target: string | undefined
  /** Whether it imports only types, which do not exist at run time. */
  isTypeOnly: boolean
}

const importPattern = /(?:\bfrom|\bimport)\s*\(?\s*['"]([^'"\n]+)['"]/g
/** Matches the part before `from` in imports without values: `import type { A }` and `import { type A, type B }`. */
const typeOnly = /(?:^|\n)(?:import|export)\s+(?:type\b[^'";]*|\{(?:\s*type\s+[\w\s]+,?)+\s*\}\s*)$/

/** Returns the module of a file in src/; `undefined` if it is in none. */
export function moduleOf(path: string): string | undefined {
  const top = topFiles[path]
  if (top) return top
  const [src, module, ...rest] = path.split('/')
  return src === 'src' && module && rest.length > 0 ? module : undefined
}

function* importsOf(tree: Tree): Generator<Import> {
  for (const [path, text] of tree) {
    if (!path.startsWith('src/') || !path.endsWith('.ts')) continue
    for (const { line, match } of places(text, importPattern)) {
      const specifier = match[1] ?? ''
      const target = specifier.startsWith('.') ? posix.join(dirname(path), specifier) : undefined
      const before = text.slice(Math.max(0, (match.index ?? 0) - 2000), match.index)
      const isTypeOnly = match[0].startsWith('from') && typeOnly.test(before)
      yield { path, line, specifier, target, isTypeOnly }
    }
  }
}

/** Finds imports that the table does not allow, and files that are in no module. */
export function brokenEdges(tree: Tree): Problem[] {
  const problems: Problem[] = []
  for (const path of tree.keys()) {
    if (!path.startsWith('src/') || !path.endsWith('.ts')) continue
    const module = moduleOf(path)
    if (!module || !importTable[module])
      problems.push({ path, line: 0, problem: 'is not in a module of the import table' })
  }
  for (const { path, line, specifier, target } of importsOf(tree)) {
    if (!target) continue
    const from = moduleOf(path) ?? ''
    const to = moduleOf(target)
    if (to === undefined) problems.push({ path, line, problem: `imports ${specifier}, which is in no module` })
    else if (from !== to && !importTable[from]?.[to])
      problems.push({ path, line, problem: `${from} may not import ${to}` })
    const limit = importLimits.find((each) => each.from === from && each.to === to)
    if (limit && !limit.files.includes(target)) {
      problems.push({ path, line, problem: `${from} may not import ${target}: ${limit.reason}` })
    }
  }
  return problems
}

/** Finds packages that are imported by other modules than the table allows. */
export function strayPackages(tree: Tree): Problem[] {
  const problems: Problem[] = []
  for (const { path, line, specifier, target } of importsOf(tree)) {
    if (target || specifier.startsWith('node:')) continue
    const name = specifier
      .split('/')
      .slice(0, specifier.startsWith('@') ? 2 : 1)
      .join('/')
    const place = packageTable[name]
    const module = moduleOf(path) ?? ''
    if (!place) problems.push({ path, line, problem: `${name} is not in the package table` })
    else if (!place.modules.includes(module)) {
      problems.push({ path, line, problem: `${module} may not import ${name}: ${place.reason}` })
    }
  }
  return problems
}

/** Finds files that import values of each other, directly or indirectly. Type-only imports do not count. */
export function valueCycles(tree: Tree): Problem[] {
  const edges = new Map<string, Map<string, Import>>()
  for (const each of importsOf(tree)) {
    if (!each.target || each.isTypeOnly) continue
    const targets = edges.get(each.path) ?? new Map<string, Import>()
    edges.set(each.path, targets.set(each.target, each))
  }
  const seen = new Set<string>()
  return [...edges.keys()].flatMap((start) => {
    const cycle = shortestCycle(edges, start)
    const name = [...(cycle ?? [])].sort().join()
    if (!cycle || seen.has(name)) return []
    seen.add(name)
    const line = edges.get(start)?.get(cycle[1] ?? start)?.line ?? 0
    return [{ path: start, line, problem: `imports itself: ${[...cycle, start].join(' → ')}` }]
  })
}

/** Returns the shortest path from a file back to itself, by breadth-first search. */
function shortestCycle(edges: Map<string, Map<string, Import>>, start: string): string[] | undefined {
  const cameFrom = new Map<string, string>()
  const queue = [start]
  for (const file of queue) {
    for (const next of edges.get(file)?.keys() ?? []) {
      if (next === start) {
        const path = [file]
        while (path[0] !== start) path.unshift(cameFrom.get(path[0]!)!)
        return path
      }
      if (cameFrom.has(next)) continue
      cameFrom.set(next, file)
      queue.push(next)
    }
  }
  return undefined
}

/** Finds modules that import each other, directly or indirectly. */
export function moduleCycles(tree: Tree): Problem[] {
  const edges = new Map<string, Map<string, Import>>()
  for (const each of importsOf(tree)) {
    const from = moduleOf(each.path)
    const to = each.target && moduleOf(each.target)
    if (!from || !to || from === to) continue
    const targets = edges.get(from) ?? new Map<string, Import>()
    if (!targets.has(to)) targets.set(to, each)
    edges.set(from, targets)
  }
  const problems: Problem[] = []
  for (const module of edges.keys()) {
    const cycle = pathBack(edges, module, [module])
    // Each cycle is reported once, for its alphabetically first module.
    if (!cycle || [...cycle].sort()[0] !== module) continue
    const first = edges.get(module)?.get(cycle[1] ?? '')
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
