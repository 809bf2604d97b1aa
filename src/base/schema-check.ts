import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js'
import type { Static, TObject } from 'typebox'
import { Refusal } from './errors.ts'

/** @throws Refusal `invalid_argument` with the field, the expected and the actual value. */
export type CheckArguments<Input> = (given: unknown) => Input

// BOUNDARY: arguments are hostile. The first problem ends the check, so that its cost is bounded by the schema.
const ajv = new Ajv2020({ strict: true, strictTypes: false, allErrors: false, ownProperties: true, verbose: true })

/** Compiles a schema into a check. Its errors state which field a model has to fix, and how. */
export function compile<Schema extends TObject>(schema: Schema): CheckArguments<Static<Schema>> {
  const validate: ValidateFunction = ajv.compile(schema)
  return (given) => {
    const input = withoutMeta(given)
    if (!validate(input)) throw toRefusal(validate.errors?.[0])
    return input as Static<Schema>
  }
}

/** Removes `_meta`, which some clients repeat inside the arguments. */
function withoutMeta(given: unknown): unknown {
  if (typeof given !== 'object' || given === null || !Object.hasOwn(given, '_meta')) return given
  return Object.fromEntries(Object.entries(given).filter(([name]) => name !== '_meta'))
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

/** Describes the actual value, shortened. */
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
function fieldName(pointer: string): string {
  const words = pointer.split('/').slice(1)
  return words.map((word) => word.replaceAll('~1', '/').replaceAll('~0', '~').slice(0, 128)).join('.')
}
