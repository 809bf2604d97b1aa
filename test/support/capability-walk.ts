import { type Capability, capabilities } from '../../src/base/capabilities.ts'
import type { ToolGrant } from '../../src/core/access/rights.ts'

/** A tool for each capability that grants nothing else, so that a key can be given any set of capabilities. */
export const singleGrants: readonly ToolGrant[] = capabilities.map((capability) => ({
  name: grantOf(capability),
  toolset: 'execute',
  capabilities: [capability],
}))

export function grantOf(capability: Capability): string {
  return `only:${capability}`
}

/** The tools of a key that has every capability but some. */
export const allBut = (...missing: Capability[]): string[] =>
  capabilities.filter((capability) => !missing.includes(capability)).map(grantOf)

/** An operation or tool, with the capabilities that its definition declares. */
export interface Declared {
  name: string
  capabilities: readonly Capability[]
}

/** What a call was answered with: the capability that a refusal named, or `null` where rights did not refuse it. */
export type Denied = Capability | null

/**
 * Calls everything that is declared with every capability missing in turn, and compares what is refused with what is
 * declared.
 * @param call calls one, with a key that has all capabilities but the missing one.
 * @returns the differences, in words.
 */
export async function walk<Item extends Declared>(
  declared: readonly Item[],
  call: (item: Item, missing: Capability) => Promise<Denied>,
): Promise<string[]> {
  const problems: string[] = []
  for (const item of declared) {
    if (item.capabilities.length === 0) problems.push(`${item.name} declares no capability`)
    for (const missing of capabilities) {
      const denied = await call(item, missing)
      const isNeeded = item.capabilities.includes(missing)
      if (isNeeded && denied !== missing) problems.push(`${item.name} is answered without ${missing}`)
      if (!isNeeded && denied !== null)
        problems.push(`${item.name} is refused for ${denied}, with only ${missing} missing`)
    }
  }
  return problems
}

/** The capability of each verb of an object and the objects in it, by its path; `null` where it has none. */
export function verbsOf(object: object, path = ''): Map<string, Capability | null> {
  const verbs = new Map<string, Capability | null>()
  for (const name of namesOf(object)) {
    const value = (object as Record<string, unknown>)[name]
    const at = path === '' ? name : `${path}.${name}`
    if (typeof value === 'function') verbs.set(at, (value as { capability?: Capability }).capability ?? null)
    else if (typeof value === 'object' && value !== null && path === '') {
      for (const [inner, capability] of verbsOf(value, at)) verbs.set(inner, capability)
    }
  }
  return verbs
}

/** Also of methods of a class. */
function namesOf(object: object): string[] {
  const prototype: unknown = Object.getPrototypeOf(object)
  const inherited = prototype === Object.prototype || prototype === null ? [] : Object.getOwnPropertyNames(prototype)
  return [...Object.keys(object), ...inherited.filter((name) => name !== 'constructor')]
}

interface Schema {
  type?: string
  enum?: readonly unknown[]
  minimum?: number
  properties?: Record<string, Schema>
  required?: readonly string[]
}

/** The smallest value that a schema accepts, as far as bodies and arguments of the product need. */
export function sampleOf({ type, enum: values, minimum, properties = {}, required = [] }: Schema): unknown {
  if (values) return values[0]
  switch (type) {
    case 'object':
      return Object.fromEntries(required.map((name) => [name, sampleOf(properties[name]!)]))
    case 'integer':
    case 'number':
      return minimum ?? 1
    case 'boolean':
      return false
    case 'array':
      return []
    default:
      return 'x'
  }
}
