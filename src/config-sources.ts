/** Reads one setting from the place where it is written, and explains what is wrong with it. */
import { Value } from 'typebox/value'
import { type Document, parseDocument } from 'yaml'
import { StartRefused } from './base/errors.ts'
import type { Setting } from './setting.ts'

/** Where a value came from, in order of precedence. */
export type Source = 'flag' | 'variable' | 'file' | 'default'

/** The part of JSON Schema that settings use. */
interface Shape {
  type?: string
  enum?: readonly unknown[]
  items?: Shape
  properties?: Record<string, Shape>
  pattern?: string
  minimum?: number
  maximum?: number
  multipleOf?: number
}

const sizes: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KiB: 1024,
  MiB: 1024 ** 2,
  GiB: 1024 ** 3,
  TiB: 1024 ** 4,
}

/**
 * Reads one setting: text from a flag or a variable, any YAML value from a file.
 * @param place where the operator finds it, for example "The variable GLOVEBOX_PORT"
 * @throws StartRefused with the place and what is accepted there.
 */
export function readSetting(setting: Setting, written: unknown, place: string): unknown {
  const value = fromText(setting, written)
  const isValid = Value.Check(setting.schema, value)
  const problem = isValid ? setting.problem(value as never) : undefined
  if (isValid && problem === undefined) return value
  const shown = setting.secret ? 'its value (hidden)' : JSON.stringify(written)
  throw new StartRefused(
    `${place}: ${problem ?? `${shown} is not ${expected(setting)}.`}`,
    'Correct the value or remove it; docs/configuration.md describes every setting.',
  )
}

function fromText(setting: Setting, written: unknown): unknown {
  const shape: Shape = setting.schema
  if (Array.isArray(written) && shape.type === 'object') return fromPairs(written, shape)
  if (typeof written !== 'string') return written
  const text = written.trim()
  switch (shape.type) {
    case 'boolean':
      return text === 'true' || text === '1' ? true : text === 'false' || text === '0' ? false : text
    case 'integer':
    case 'number':
      return setting.unit === 'bytes' ? fromSize(text) : /^(0x[0-9a-f]+|\d+(\.\d+)?)$/i.test(text) ? Number(text) : text
    case 'array':
      return text === '' ? [] : text.split(',').map((item) => item.trim())
    case 'object':
      return fromJson(text)
    default:
      return written
  }
}

/** Returns the number of bytes of a size such as `512MiB`, and any other text as it is. */
export function fromSize(text: string): unknown {
  const [, amount, unit = 'B'] = /^(\d+(?:\.\d+)?) ?([KMGT]i?B|B)?$/.exec(text) ?? []
  const factor = sizes[unit]
  return amount === undefined || factor === undefined ? text : Math.round(Number(amount) * factor)
}

function fromJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** One `NAME=value` for each time the flag was used. The values of a name make a list where it has a list. */
function fromPairs(pairs: readonly unknown[], { properties }: Shape): unknown {
  const entries = pairs.map((pair) => /^([^=]+)=(.*)$/s.exec(String(pair)))
  if (entries.some((entry) => entry === null)) return pairs
  if (!hasLists(properties)) return Object.fromEntries(entries.map((entry) => [entry?.[1], entry?.[2]]))
  const ofNames = Map.groupBy(entries, (entry) => String(entry?.[1]))
  return Object.fromEntries([...ofNames].map(([name, found]) => [name, found.map((entry) => entry?.[2])]))
}

const hasLists = (properties: Shape['properties']): boolean =>
  Object.values(properties ?? {}).some(({ type }) => type === 'array')

/** Describes what a setting accepts, for refusals and for the documentation. */
export function expected({ schema, unit }: Setting): string {
  const shape: Shape = schema
  const bounds = range(shape, unit)
  if (shape.enum) return `one of ${shape.enum.join(', ')}`
  switch (shape.type) {
    case 'boolean':
      return 'true or false'
    case 'integer':
    case 'number': {
      if (unit === 'bytes') return `a size such as 512MiB${bounds}`
      const number = shape.type === 'integer' ? 'a whole number' : 'a number'
      return `${number}${bounds}${shape.multipleOf ? `, a multiple of ${shape.multipleOf}` : ''}`
    }
    case 'array':
      return shape.items?.enum ? `a list of ${shape.items.enum.join(', ')}` : 'a list of names without spaces'
    case 'object':
      return shape.properties
        ? `a map of ${Object.keys(shape.properties).join(', ')} to ${hasLists(shape.properties) ? 'lists of names' : 'text'}`
        : 'a map of variable names to text'
    default:
      return shape.pattern?.startsWith('^/') ? 'an absolute path' : 'text without spaces'
  }
}

function range(shape: Shape, unit: Setting['unit']): string {
  if (shape.minimum === undefined || shape.maximum === undefined) return ''
  const shown = (value: number) => (unit === 'bytes' ? sizeText(value) : String(value))
  return `, ${shown(shape.minimum)} to ${shown(shape.maximum)}`
}

/** Formats a size as `512MiB` where that is exact, as plain bytes otherwise. */
export function sizeText(bytes: number): string {
  for (const unit of ['TiB', 'GiB', 'MiB', 'KiB'] as const) {
    const size = sizes[unit] ?? 1
    if (bytes >= size && bytes % size === 0) return `${bytes / size}${unit}`
  }
  return String(bytes)
}

/**
 * Parses a configuration file.
 * @throws StartRefused when it is not YAML, or its top level is not a map.
 */
export function readFileText(path: string, text: string): Record<string, unknown> {
  const document = parseDocument(text)
  const [problem] = [...document.errors, ...document.warnings]
  if (problem) {
    const line = problem.message.split('\n')[0] ?? ''
    throw new StartRefused(`The file ${path} is not valid YAML: ${line}`, 'Correct this line.')
  }
  const value: unknown = fromDocument(path, document)
  return asMap(value ?? {}, `The file ${path}`)
}

/** A few aliases can expand to gigabytes; the bound limits them. */
function fromDocument(path: string, document: Document): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 })
  } catch (error) {
    throw new StartRefused(`The file ${path} cannot be used: ${error}.`, 'Write the values without YAML aliases.')
  }
}

/** @throws StartRefused when `value` is not a map. */
export function asMap(value: unknown, place: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  throw new StartRefused(`${place} must contain a map of settings.`, 'Write one "name: value" per line.')
}

/** Refuses an unknown name and suggests the most similar known one. @throws StartRefused always. */
export function refuseUnknown(place: string, name: string, known: readonly string[]): never {
  const suggestion = nearest(name, known)
  throw new StartRefused(
    `${place} is not a setting.`,
    suggestion ? `Did you mean ${suggestion}?` : 'Remove it; docs/configuration.md lists every setting.',
  )
}

function nearest(name: string, known: readonly string[]): string | undefined {
  const ranked = known
    .map((candidate) => ({ candidate, distance: editDistance(name, candidate) }))
    .sort((a, b) => a.distance - b.distance)
  const best = ranked[0]
  return best && best.distance <= Math.max(2, name.length / 3) ? best.candidate : undefined
}

function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let line = 1; line <= from.length; line++) {
    const next = [line]
    for (let column = 1; column <= to.length; column++) {
      const swap = (row[column - 1] ?? 0) + (from[line - 1] === to[column - 1] ? 0 : 1)
      next.push(Math.min(swap, (row[column] ?? 0) + 1, (next[column - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[to.length] ?? 0
}
