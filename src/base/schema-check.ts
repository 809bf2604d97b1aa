import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js'
import type { Static, TObject } from 'typebox'
import { closestName } from './closest-name.ts'
import { Refusal } from './errors.ts'
import { isExact } from './json.ts'

/**
 * Checks the arguments of one call.
 * @param warn receives a sentence for each kind of argument that was ignored.
 * @throws Refusal `invalid_argument` that names the field, what was expected and what was sent.
 */
export type CheckArguments<Input> = (given: unknown, warn?: (warning: string) => void) => Input

export interface CheckOptions {
  /**
   * Accepts what models and generated clients send: `null` for an optional argument and an empty ID are absent, and
   * unknown arguments are ignored with a warning, unless they resemble one that is missing.
   */
  lenient?: boolean
  /** Converts other accepted values of an argument, by its name. */
  aliases?: Readonly<Record<string, (value: unknown) => unknown>>
}

// BOUNDARY: arguments are hostile. The first problem ends the check, so that its cost is bounded by the schema.
const ajv = new Ajv2020({ strict: true, strictTypes: false, allErrors: false, ownProperties: true, verbose: true })

/** Compiles a schema into a check whose refusals say which argument to fix, and how. */
export function compile<Schema extends TObject>(
  schema: Schema,
  { lenient = false, aliases = {} }: CheckOptions = {},
): CheckArguments<Static<Schema>> {
  const validate: ValidateFunction = ajv.compile(schema)
  const normalize = lenient ? lenientReader(schema, aliases) : withoutMeta
  return (given, warn) => {
    const input = normalize(given, warn)
    if (!validate(input)) throw toRefusal(validate.errors?.[0])
    return input as Static<Schema>
  }
}

/** As `compile`, when it is first called: compiling one takes milliseconds, and a server has some hundred. */
export function compileLater<Schema extends TObject>(
  schema: Schema,
  options: CheckOptions = {},
): CheckArguments<Static<Schema>> {
  let check: CheckArguments<Static<Schema>> | undefined
  return (given, warn) => {
    check ??= compile(schema, options)
    return check(given, warn)
  }
}

/** Removes `_meta` of the protocol, which some clients repeat inside the arguments. */
function withoutMeta(given: unknown): unknown {
  if (typeof given !== 'object' || given === null || !Object.hasOwn(given, '_meta')) return given
  return Object.fromEntries(Object.entries(given).filter(([name]) => name !== '_meta'))
}

/** Optional arguments for which an empty string means that there is no value. */
const emptyIsAbsent = /(?:^|_)(?:id|key)$|^(?:cursor|language|subject|webhook_url)$/
/** A warning names so many unknown arguments; a caller can send many. */
const maxNamed = 8

function lenientReader(schema: TObject, aliases: NonNullable<CheckOptions['aliases']>) {
  const { properties, required = [] } = schema as { properties: Record<string, object>; required?: string[] }
  const optional = Object.keys(properties).filter((name) => !required.includes(name))
  const acceptNull = new Set(optional.filter((name) => ajv.validate(properties[name]!, null)))
  const isAbsent = (name: string, value: unknown): boolean =>
    optional.includes(name) && ((value === null && !acceptNull.has(name)) || (value === '' && emptyIsAbsent.test(name)))
  return (given: unknown, warn?: (warning: string) => void): unknown => {
    if (typeof given !== 'object' || given === null || Array.isArray(given)) return given
    const unknown: string[] = []
    const known: [string, unknown][] = []
    for (const [name, value] of Object.entries(given)) {
      if (name === '_meta' || isAbsent(name, value)) continue
      if (!Object.hasOwn(properties, name)) unknown.push(name)
      else known.push([name, Object.hasOwn(aliases, name) ? aliases[name]!(value) : value])
    }
    const input = Object.fromEntries(
      known.map(([name, value]) => [name, isExact(value) ? Number(value.rawJSON) : value]),
    )
    if (unknown.length === 0) return input
    refuseNearMisses(
      unknown,
      Object.keys(properties).filter((name) => !Object.hasOwn(input, name)),
    )
    const names = unknown.slice(0, maxNamed).map(shown).join(', ')
    const more = unknown.length > maxNamed ? ` and ${unknown.length - maxNamed} more` : ''
    warn?.(`Ignored unknown arguments: ${names}${more}. Known are ${Object.keys(properties).join(', ')}.`)
    return input
  }
}

/** @throws Refusal `invalid_argument` for a name that probably means one of the missing arguments. */
function refuseNearMisses(unknown: readonly string[], missing: readonly string[]): void {
  for (const name of unknown.slice(0, maxNamed)) {
    const meant = closestName(name, missing)
    if (meant === undefined) continue
    throw new Refusal('invalid_argument', {
      field: shown(name),
      problem: `is not a known field; did you mean ${meant}`,
    })
  }
}

function toRefusal(error: ErrorObject | undefined): Refusal {
  if (error === undefined) return new Refusal('invalid_argument', { field: 'arguments', problem: 'are not valid' })
  const { keyword, params } = error
  const path = fieldName(error.instancePath)
  if (keyword === 'required') {
    const field = under(path, String(params.missingProperty))
    return new Refusal('invalid_argument', { field, problem: 'is required and missing' })
  }
  if (keyword === 'additionalProperties') {
    const names = Object.keys((error.parentSchema as { properties?: object } | undefined)?.properties ?? {})
    const field = under(path, shown(String(params.additionalProperty)))
    return new Refusal('invalid_argument', {
      field,
      problem: `is not a known field; known fields: ${names.join(', ')}`,
    })
  }
  return new Refusal('invalid_argument', {
    field: path || 'arguments',
    problem: `${expected(error)}; ${actual(error.data)}`,
  })
}

function expected({ keyword, params, message }: ErrorObject): string {
  switch (keyword) {
    case 'type':
      return `must be ${article(String(params.type))}`
    case 'enum':
      return `must be one of ${(params.allowedValues as unknown[]).map(String).join(', ')}`
    case 'minimum':
      return `must be at least ${params.limit}`
    case 'maximum':
      return `must be at most ${params.limit}`
    default:
      return message ?? 'is not valid'
  }
}

/** Describes what was sent, shortened. */
function actual(value: unknown): string {
  if (value === null) return 'it is null'
  if (typeof value === 'string') return `it is ${shown(value)}`
  if (typeof value === 'object') return Array.isArray(value) ? 'it is an array' : 'it is an object'
  return `it is the ${typeof value} ${String(value)}`
}

const shown = (text: string): string => JSON.stringify(text.length > 64 ? `${text.slice(0, 64)}…` : text)

const article = (type: string): string => `${/^[aeiou]/.test(type) ? 'an' : 'a'} ${type}`

const under = (path: string, name: string): string => (path ? `${path}.${name}` : name)

/** `/env_vars/KEY` as `env_vars.KEY`. */
const fieldName = (pointer: string): string =>
  wordsOf(pointer)
    .map((word) => word.slice(0, 128))
    .join('.')

const wordsOf = (pointer: string): string[] =>
  pointer
    .split('/')
    .slice(1)
    .map((word) => word.replaceAll('~1', '/').replaceAll('~0', '~'))

/** What is wrong at one place of a value. */
export interface SchemaProblem {
  path: readonly string[]
  problem: string
}

/** Reports every problem. For files of operators only: its cost is not bounded by the schema. */
const thorough = new Ajv2020({ strict: true, strictTypes: false, allErrors: true, ownProperties: true, verbose: true })

/** Compiles a schema into a check that returns all problems of a value, by their place. */
export function problemsIn(schema: TObject): (given: unknown) => SchemaProblem[] {
  const validate = thorough.compile(schema)
  return (given) => {
    if (validate(given)) return []
    const errors = validate.errors ?? []
    // What each alternative lacks says less than that none of them fits.
    const places = errors.filter(({ keyword }) => keyword === 'anyOf').map(({ instancePath }) => instancePath)
    const isWithin = (error: ErrorObject) =>
      error.keyword !== 'anyOf' && places.some((place) => `${error.instancePath}/`.startsWith(`${place}/`))
    return errors.filter((error) => !isWithin(error)).map(toProblem)
  }
}

function toProblem(error: ErrorObject): SchemaProblem {
  const { keyword, params, parentSchema, instancePath } = error
  const path = wordsOf(instancePath)
  if (keyword === 'required') return { path, problem: `must contain ${params.missingProperty}` }
  if (keyword === 'additionalProperties') {
    const known = Object.keys((parentSchema as { properties?: object } | undefined)?.properties ?? {})
    const name = String(params.additionalProperty)
    const meant = closestName(name, known)
    const hint = meant === undefined ? `known fields: ${known.join(', ')}` : `did you mean ${meant}?`
    return { path: [...path, name], problem: `is not a known field; ${hint}` }
  }
  if (keyword === 'anyOf') {
    const { description } = parentSchema as { description?: string }
    return { path, problem: `must be one of the accepted forms${description ? `: ${description}` : ''}` }
  }
  return { path, problem: `${expected(error)}; ${actual(error.data)}` }
}

/** Compiles schemas of administrators. Unknown keywords are errors, so that a misspelled one does not permit everything. */
const narrowing = new Ajv2020({
  strictSchema: true,
  strictTypes: false,
  strictRequired: false,
  allErrors: false,
  ownProperties: true,
})

/**
 * Compiles a schema that narrows the arguments of a tool.
 * @returns a function that says what is wrong with arguments, or returns `undefined` if they match.
 * @throws Error if the schema is invalid.
 */
export function narrowingCheck(schema: object): (given: unknown) => string | undefined {
  const validate = narrowing.compile(structuredClone(schema))
  return (given) => {
    if (validate(given)) return undefined
    const { instancePath = '', message = 'is invalid' } = validate.errors?.[0] ?? {}
    return `${instancePath.replaceAll('/', '.').replace(/^\./, '') || 'arguments'} ${message}`
  }
}
