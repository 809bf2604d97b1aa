/** How one setting is defined, and the names under which operators and the code know it. */
import Type, { type Static, type TSchema } from 'typebox'

/** `bytes` are written as a number or as `512MiB`; every other unit is written as a plain number. */
export type Unit = 'bytes' | 'seconds' | 'days' | 'cores' | 'count' | 'id' | undefined

/** One setting: its flag, variable, file key, check, documentation and typed value all follow from this. */
export interface Setting<Schema extends TSchema = TSchema, Of extends Unit = Unit> {
  schema: Schema
  default: unknown
  unit: Of
  /** The sentence that `--help` and docs/configuration.md print. */
  meaning: string
  /** Whether a profile may override it under `profiles:`. */
  inProfiles: boolean
  /** Whether its value must never be printed. */
  secret: boolean
  /** Earlier names. They still work, with a deprecation warning. */
  formerNames: readonly string[]
  /** Returns what is wrong with a value that the schema accepts, or `undefined`. */
  problem: (value: never) => string | undefined
}

interface Options<Schema extends TSchema, Of extends Unit> {
  unit?: Of
  inProfiles?: boolean
  secret?: boolean
  formerNames?: readonly string[]
  problem?: (value: Static<Schema>) => string | undefined
}

/** Defines a setting. @param value the default. @param meaning one sentence for operators. */
export function setting<Schema extends TSchema, const Of extends Unit = undefined>(
  schema: Schema,
  value: Static<Schema>,
  meaning: string,
  options: Options<Schema, Of> = {},
): Setting<Schema, Of> {
  const { unit, inProfiles = false, secret = false, formerNames = [], problem = () => undefined } = options
  return { schema, default: value, unit: unit as Of, meaning, inProfiles, secret, formerNames, problem }
}

export const KiB = 1024
export const MiB = 1024 * KiB
export const GiB = 1024 * MiB

export const names = Type.Array(Type.String({ pattern: '^[^\\s,]+$' }))
export const count = (minimum: number, maximum: number) => Type.Integer({ minimum, maximum })
export const bytes = count
export const seconds = (minimum: number, maximum: number) => Type.Number({ minimum, maximum })

/** The flag of a setting: `slot_idle_s` is `--slot-idle-s`. */
export const flagOf = (name: string): string => `--${name.replaceAll('_', '-')}`
/** The environment variable of a setting: `slot_idle_s` is `GLOVEBOX_SLOT_IDLE_S`. */
export const variableOf = (name: string): string => `GLOVEBOX_${name.toUpperCase()}`

type Camel<Name extends string> = Name extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<Camel<Tail>>}`
  : Name
type Without<Name extends string, Suffix extends string> = Name extends `${infer Base}${Suffix}` ? Base : Name

/** The name of a setting in code: camelCase, durations in milliseconds as `…Ms`, sizes as `…Bytes`. */
export type PropertyOf<Name extends string, Of extends Unit> = Of extends 'seconds'
  ? `${Camel<Without<Name, '_s'>>}Ms`
  : Of extends 'days'
    ? `${Camel<Without<Name, '_days'>>}Ms`
    : Of extends 'bytes'
      ? `${Camel<Without<Name, '_bytes'>>}Bytes`
      : Camel<Name>

/** The typed values of a table of settings, under their names in code. */
export type Properties<Table extends Record<string, Setting>> = {
  readonly [Name in keyof Table & string as PropertyOf<Name, Table[Name]['unit']>]: Static<Table[Name]['schema']>
}

const camel = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
const dayMs = 24 * 60 * 60 * 1000

function toProperty(name: string, unit: Unit, value: unknown): [name: string, value: unknown] {
  switch (unit) {
    case 'seconds':
      return [`${camel(name.replace(/_s$/, ''))}Ms`, (value as number) * 1000]
    case 'days':
      return [`${camel(name.replace(/_days$/, ''))}Ms`, (value as number) * dayMs]
    case 'bytes':
      return [`${camel(name.replace(/_bytes$/, ''))}Bytes`, value]
    case 'cores':
    case 'count':
    case 'id':
    case undefined:
      return [camel(name), value]
  }
}

/** Converts checked values from the names and units that operators write to those that code uses. */
export function toProperties<Table extends Record<string, Setting>>(
  table: Table,
  values: Readonly<Record<keyof Table, unknown>>,
): Properties<Table> {
  const entries = Object.entries(table).map(([name, { unit }]) => toProperty(name, unit, values[name]))
  return Object.fromEntries(entries) as Properties<Table>
}
