import { LRUCache } from 'lru-cache'
import { narrowingCheck } from '../../base/schema-check.ts'
import { invalid } from './checks.ts'

/** What a key may do at upstreams, besides the tools that it may call. */
export interface UpstreamPolicy {
  /** Maximum number of requests to upstreams per minute; absent for no limit. */
  calls_per_minute?: number
  /** Permits only tools that are annotated as read-only. */
  read_only?: boolean
  /** JSON Schemas that arguments must match too, by `vendor/name#tool`. */
  arguments?: Readonly<Record<string, object>>
}

const callsMax = 1_000_000
/** Maximum number of tools with constraints of a key. */
const constraintsMax = 64
/** Maximum size of a policy as JSON. */
const policyMaxBytes = 64 * 1024
const toolForm = /^[a-z0-9][a-z0-9._-]{0,63}\/[a-z0-9][a-z0-9._-]{0,63}#.{1,128}$/

/** Checks the policy of a key. @throws Refusal `invalid_argument`. */
export function checkPolicy(policy: UpstreamPolicy): void {
  const { calls_per_minute: calls, arguments: constraints = {} } = policy
  if (calls !== undefined && !(Number.isInteger(calls) && calls >= 1 && calls <= callsMax)) {
    throw invalid('upstream_policy.calls_per_minute', `must be a whole number from 1 to ${callsMax}`)
  }
  const names = Object.keys(constraints)
  if (names.length > constraintsMax) {
    throw invalid('upstream_policy.arguments', `has ${names.length} entries; the maximum is ${constraintsMax}`)
  }
  if (JSON.stringify(policy).length > policyMaxBytes) {
    throw invalid('upstream_policy', `is larger than ${policyMaxBytes} bytes`)
  }
  for (const [name, schema] of Object.entries(constraints)) {
    const field = `upstream_policy.arguments.${name.slice(0, 64)}`
    if (!toolForm.test(name)) throw invalid(field, 'must be named vendor/name#tool')
    try {
      narrowingCheck(schema)
    } catch (error) {
      throw invalid(field, `is not a JSON Schema: ${(error as Error).message.slice(0, 200)}`)
    }
  }
}

/** A constraint on the arguments of one tool. */
export interface ArgumentConstraint {
  schema: object
  /** Returns what is wrong with arguments; `undefined` if they match. */
  problemOf(given: unknown): string | undefined
}

/** Maximum number of compiled schemas that are cached. */
const compiledMax = 1_000
const compiled = new LRUCache<string, ArgumentConstraint>({ max: compiledMax })

/** Returns the constraints of a policy for one upstream, by the name of the tool. */
export function constraintsOf(
  policy: UpstreamPolicy | null,
  upstream: string,
): ReadonlyMap<string, ArgumentConstraint> {
  const prefix = `${upstream}#`
  const own = Object.entries(policy?.arguments ?? {}).filter(([name]) => name.startsWith(prefix))
  return new Map(own.map(([name, schema]) => [name.slice(prefix.length), constraintOf(schema)]))
}

function constraintOf(schema: object): ArgumentConstraint {
  const text = JSON.stringify(schema)
  const known = compiled.get(text)
  if (known) return known
  const constraint = { schema, problemOf: narrowingCheck(schema) }
  compiled.set(text, constraint)
  return constraint
}
