import { isIP } from 'node:net'
import { plainName } from '../../base/network.ts'
import { type NetworkSecret, parseSecretHost, type SecretHost, type SecretPlace } from '../../base/network-secrets.ts'
import { NetworkRefused, type Target, where } from '../decision.ts'
import { Finder, inOrder, type Replacement } from './masking.ts'

/** A request as the program wrote it. */
export interface WrittenRequest {
  target: Target
  isTls: boolean
  /** With its query. */
  path: string
  /** Names and values in turn. */
  headers: readonly string[]
}

/** A request as it is sent. */
export interface FilledRequest {
  path: string
  headers: string[]
  /** What its answer must not contain; empty if the server receives no secret. */
  echoes: readonly Replacement[]
}

interface Known {
  secret: NetworkSecret
  hosts: readonly SecretHost[]
}

const basicPattern = /^(?<scheme>Basic +)(?<encoded>[A-Za-z0-9+/_-]+=*) *$/i

/** The secrets of one jail. Immutable: a change makes another one. */
export class JailSecrets {
  readonly #known: readonly Known[]
  readonly #placeholders: readonly Buffer[]

  constructor(secrets: readonly NetworkSecret[] = []) {
    this.#known = secrets.map((secret) => ({
      secret,
      hosts: secret.hosts.map(parseSecretHost).filter((host) => host !== undefined),
    }))
    this.#placeholders = secrets.map(({ placeholder }) => Buffer.from(placeholder))
  }

  get isEmpty(): boolean {
    return this.#known.length === 0
  }

  /** Whether TLS to a destination is opened, since it receives a secret. */
  opens(target: Target): boolean {
    return this.#at(target, true).length > 0
  }

  /** Finds placeholders in what a program sends. */
  finder(): Finder {
    return new Finder(this.#placeholders)
  }

  /** @throws NetworkRefused `refused_secret` when a name contains a placeholder. */
  requireName(host: string): void {
    const found = this.#in(host)
    if (found !== undefined) throw refusedSecret(found, 'in a name')
  }

  /** The refusal of a placeholder in a body or in another protocol. */
  refusalOf(target: Target, how: string): NetworkRefused {
    return new NetworkRefused(
      'refused_secret',
      `network secrets: none is allowed ${how} for ${where(target.host, target.port)}`,
    )
  }

  /**
   * Puts the secrets that the destination receives in place of their placeholders.
   * @throws NetworkRefused `refused_secret` when a placeholder is left.
   */
  fill({ target, isTls, path, headers }: WrittenRequest): FilledRequest {
    const usable = this.#at(target, isTls)
    const echoes = usable.flatMap(({ value, placeholder }) =>
      formsOf(value).map((from) => toReplacement(from, placeholder)),
    )
    const fill = (text: string, place: SecretPlace, inForm = (value: string) => value): string => {
      let filled = text
      for (const { placeholder, value, places } of usable)
        if (places.includes(place)) filled = filled.replaceAll(placeholder, () => inForm(value))
      const left = this.#in(filled)
      if (left !== undefined) throw refusedSecret(left, `in ${inWords[place]} for ${where(target.host, target.port)}`)
      return filled
    }
    const queryAt = path.indexOf('?')
    const plainPath = queryAt < 0 ? path : path.slice(0, queryAt)
    const inPath = this.#in(plainPath) ?? this.#in(decoded(plainPath))
    if (inPath !== undefined) throw refusedSecret(inPath, `in the path for ${where(target.host, target.port)}`)
    const filledHeaders = headers.map((text, i) => {
      if (i % 2 === 0) {
        const found = this.#in(text)
        if (found !== undefined) throw refusedSecret(found, 'in the name of a header')
        return text
      }
      const basic = /^(?:proxy-)?authorization$/i.test(headers[i - 1]!) ? basicPattern.exec(text)?.groups : undefined
      const credentials = Buffer.from(basic?.encoded ?? '', 'base64').toString('latin1')
      if (basic === undefined || this.#in(credentials) === undefined) return fill(text, 'header')
      const encoded = Buffer.from(fill(credentials, 'basic'), 'latin1').toString('base64')
      for (const from of [encoded, encoded.replace(/=+$/, '')]) echoes.push(toReplacement(from, basic.encoded!))
      return `${basic.scheme}${encoded}`
    })
    return {
      path: queryAt < 0 ? path : `${plainPath}${fill(path.slice(queryAt), 'query', encodeURIComponent)}`,
      headers: filledHeaders,
      echoes: inOrder(echoes),
    }
  }

  #at({ host, port }: Target, isTls: boolean): NetworkSecret[] {
    if (isIP(host) !== 0) return []
    const name = plainName(host)
    const receives = (one: SecretHost) => one.isPlain !== isTls && one.port === port && matches(one, name)
    return this.#known.filter(({ hosts }) => hosts.some(receives)).map(({ secret }) => secret)
  }

  /** Names are compared without case. */
  #in(text: string): string | undefined {
    const upper = text.length < 32 ? '' : text.toLowerCase()
    return this.#known.find(({ secret }) => upper.includes(secret.placeholder.toLowerCase()))?.secret.name
  }
}

const inWords: Record<SecretPlace, string> = {
  header: 'a header',
  query: 'the query',
  basic: 'the credentials of basic authentication',
}

const refusedSecret = (name: string, where: string): NetworkRefused =>
  new NetworkRefused('refused_secret', `network secrets: ${name} is not allowed ${where}`)

const matches = ({ target }: SecretHost, name: string): boolean =>
  target.kind === 'name' ? name === target.name : name.endsWith(target.suffix) && name.length > target.suffix.length

const toReplacement = (from: string, to: string): Replacement => ({
  from: Buffer.from(from, 'latin1'),
  to: Buffer.from(to, 'latin1'),
})

/** A value as servers write it: as it is, in a query, in JSON, and in HTML. */
const formsOf = (value: string): string[] => [
  ...new Set([
    value,
    encodeURIComponent(value),
    encodeURIComponent(value).replaceAll('%20', '+'),
    JSON.stringify(value).slice(1, -1),
    JSON.stringify(value).slice(1, -1).replaceAll('/', '\\/'),
    value.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;'),
    Buffer.from(value).toString('base64'),
  ]),
]

function decoded(path: string): string {
  try {
    return decodeURIComponent(path)
  } catch {
    return path
  }
}
