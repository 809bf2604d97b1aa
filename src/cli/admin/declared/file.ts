/** Reads the file of a declaration, and finds the line of each mistake. */
import { readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { type Document, isAlias, isMap, isNode, isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml'
import { isSecretName } from '../../../base/redaction/assignments.ts'
import { problemsIn, type SchemaProblem } from '../../../base/schema-check.ts'
import { fromSize } from '../../../config-sources.ts'
import type { Declaration } from '../../../core/admin/declared/declaration.ts'
import { declarationSchema } from './schema.ts'

export interface ReadOptions {
  env: Readonly<Record<string, string | undefined>>
  /** Accepts secrets that the file contains as text. */
  plainSecrets: boolean
}

/** A declaration as it is sent to the server, or what is wrong with its file. */
export class DeclarationFile {
  readonly declaration: Declaration | undefined
  readonly problems: readonly SchemaProblem[]
  readonly #path: string
  readonly #document: Document
  readonly #lines: LineCounter

  /** @throws Error if the file cannot be read. */
  constructor(path: string, text: string, options: ReadOptions) {
    this.#path = path
    this.#lines = new LineCounter()
    this.#document = parseDocument(text, { lineCounter: this.#lines, prettyErrors: false })
    const { declaration, problems } = this.#read(options)
    this.declaration = problems.length === 0 ? declaration : undefined
    this.problems = problems
  }

  #read(options: ReadOptions): { declaration?: Declaration; problems: SchemaProblem[] } {
    const broken = [...this.#document.errors, ...this.#document.warnings]
    if (broken.length > 0) {
      const problems = broken.map(({ message, pos }) => ({ path: [`@${pos[0]}`], problem: message.split('\n')[0]! }))
      return { problems }
    }
    let written: unknown
    try {
      // A few aliases can expand to gigabytes; the bound limits them.
      written = this.#document.toJS({ maxAliasCount: 100 })
    } catch (error) {
      return { problems: [{ path: [], problem: (error as Error).message }] }
    }
    const problems = problemsIn(declarationSchema)(written)
    if (problems.length > 0) return { problems }
    const resolver = new Resolver(dirname(this.#path), options)
    const declaration = resolver.walk(written, []) as Declaration
    return { declaration, problems: resolver.problems }
  }

  /** Writes a problem as `file:line:column: place: problem`, sorted by `linesOf`. */
  textOf({ path, problem }: SchemaProblem): string {
    const { line, col } = this.#lines.linePos(this.#offsetOf(path))
    const place = path[0]?.startsWith('@') ? '' : path.map((part) => `${part}: `).join('')
    return `${this.#path}:${line}:${col}: ${place}${problem}`
  }

  /** Returns the lines for problems in the order of the file. */
  linesOf(problems: readonly SchemaProblem[]): string[] {
    const ordered = problems.toSorted((a, b) => this.#offsetOf(a.path) - this.#offsetOf(b.path))
    return [...new Set(ordered.map((problem) => this.textOf(problem)))]
  }

  /** Returns the place of the name of a setting, of an item of a list, or of the nearest thing around it that exists. */
  #offsetOf(path: readonly string[]): number {
    if (path[0]?.startsWith('@')) return Number(path[0].slice(1))
    let node = this.#document.contents as Node | null
    let offset = node?.range?.[0] ?? 0
    for (const part of path) {
      if (isAlias(node)) node = node.resolve(this.#document) ?? null
      if (isMap(node)) {
        const pair = node.items.find(({ key }) => isScalar(key) && String(key.value) === part)
        if (pair === undefined) break
        offset = isNode(pair.key) ? (pair.key.range?.[0] ?? offset) : offset
        node = isNode(pair.value) ? pair.value : null
      } else if (isSeq(node)) {
        const item = node.items[Number(part)]
        if (!isNode(item)) break
        offset = item.range?.[0] ?? offset
        node = item
      } else break
    }
    return offset
  }
}

/** Places of texts that may be secrets: `*` is any name. Those that end with `!` always are. */
const texts = [
  'orgs.*.secrets.*.value!',
  'orgs.*.profiles.*.env.*',
  'orgs.*.keys.*.env_vars.*',
  'orgs.*.upstreams.*.headers.*',
  'orgs.*.upstreams.*.env.*',
  'orgs.*.upstreams.*.credential.values.*!',
  'orgs.*.upstreams.*.oauth.client_secret!',
].map((place) => ({ parts: place.replace('!', '').split('.'), isSecret: place.endsWith('!') }))

/** Headers whose value is a secret although their name does not end like that of one. */
const secretHeaders = ['authorization', 'proxy-authorization', 'cookie', 'x-api-key']

/** Replaces references by what they refer to, and sizes by numbers. */
class Resolver {
  readonly problems: SchemaProblem[] = []
  readonly #directory: string
  readonly #options: ReadOptions

  constructor(directory: string, options: ReadOptions) {
    this.#directory = directory
    this.#options = options
  }

  walk(value: unknown, path: readonly string[]): unknown {
    const text = texts.find(({ parts }) => matches(parts, path))
    if (text) return this.#text(value, path, text.isSecret)
    if (Array.isArray(value)) return value.map((item, n) => this.walk(item, [...path, String(n)]))
    if (typeof value === 'object' && value !== null)
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, this.walk(one, [...path, name])]))
    const isSize = typeof value === 'string' && path.at(-1)!.endsWith('_bytes') && !path.includes('profiles')
    return isSize ? fromSize(value) : value
  }

  #text(value: unknown, path: readonly string[], isSecret: boolean): unknown {
    if (typeof value === 'object' && value !== null) return this.#referred(value, path)
    const name = path.at(-1)!
    const isNamedSo = isSecretName(name) || secretHeaders.includes(name.toLowerCase())
    if ((isSecret || isNamedSo) && !this.#options.plainSecrets) {
      const problem = 'is a secret; refer to it with {env: NAME} or {file: path}, or use --plain-secrets'
      this.problems.push({ path, problem })
    }
    return value
  }

  #referred(reference: { env?: unknown; file?: unknown }, path: readonly string[]): unknown {
    const { env, file } = reference
    if (typeof env === 'string') {
      const value = this.#options.env[env]
      if (value === undefined || value === '') this.problems.push({ path, problem: `the variable ${env} is not set` })
      return value ?? ''
    }
    if (typeof file !== 'string') return reference
    try {
      return readFileSync(resolve(this.#directory, file), 'utf8').replace(/\r?\n$/, '')
    } catch (error) {
      this.problems.push({ path, problem: `cannot be read: ${(error as Error).message}` })
      return ''
    }
  }
}

const matches = (parts: readonly string[], path: readonly string[]): boolean =>
  parts.length === path.length && parts.every((part, n) => part === '*' || part === path[n])
