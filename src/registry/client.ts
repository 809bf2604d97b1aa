import { type Agent, type Dispatcher, request } from 'undici'
import { isLoopback, type Reference, type RegistrySource } from './reference.ts'

/** Longest manifest, index or configuration, as in the distribution specification. */
export const documentBytesMax = 4 * 1024 * 1024
/** Longest token answer. */
const tokenBytesMax = 64 * 1024
const redirectsMax = 5
/** How long a registry may take. */
export interface Patience {
  /** Until the headers of an answer, and between two pieces of its body, in milliseconds. */
  answerMs: number
  /** A body that is slower on average over this time is ended. */
  windowMs: number
  windowBytes: number
}
const usualPatience: Patience = { answerMs: 30_000, windowMs: 60_000, windowBytes: 64 * 1024 }

const manifestTypes = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.docker.distribution.manifest.v2+json',
]

/** The registry answered with something else than what was requested. */
export class RegistryError extends Error {
  constructor(problem: string) {
    super(problem)
    this.name = 'RegistryError'
  }
}

/**
 * Reads from one repository of a registry: https://github.com/opencontainers/distribution-spec/blob/main/spec.md. Addresses
 * are tried in order. What it returns is not checked: the runner compares digests. BOUNDARY: registries are not trusted.
 */
export class RegistryClient {
  readonly #agent: Agent
  readonly #patience: Patience
  readonly #repository: string
  readonly #sources: readonly RegistrySource[]
  /** The authorization that a source has accepted. */
  readonly #authorizations = new Map<RegistrySource, string>()

  constructor(
    agent: Agent,
    { repository }: Pick<Reference, 'repository'>,
    sources: readonly RegistrySource[],
    patience: Patience = usualPatience,
  ) {
    this.#agent = agent
    this.#patience = patience
    this.#repository = repository
    this.#sources = sources
  }

  /** @param version a tag or digest. @throws RegistryError. */
  async manifest(version: string): Promise<Buffer> {
    return this.#first(async (source) => {
      const headers = { accept: manifestTypes.join(', ') }
      const answer = await this.#get(source, `manifests/${version}`, headers)
      if (answer.statusCode !== 200) throw await refused(answer)
      return readAll(answer, documentBytesMax, this.#patience)
    })
  }

  /**
   * Reads a layer or configuration.
   * @param offset the first byte; what an earlier attempt has read is not read again.
   * @throws RegistryError.
   */
  async *blob(digest: string, offset: number): AsyncGenerator<Buffer, void, undefined> {
    const answer = await this.#first(async (source) => {
      const range: Record<string, string> = offset > 0 ? { range: `bytes=${offset}-` } : {}
      const answer = await this.#get(source, `blobs/${digest}`, range)
      if (answer.statusCode !== 200 && answer.statusCode !== 206) throw await refused(answer)
      return answer
    })
    // A registry without ranges sends all of it again.
    let skipped = answer.statusCode === 206 ? offset : 0
    for await (const piece of notTooSlow(answer.body, this.#patience)) {
      const isNew = Math.max(0, offset - skipped)
      skipped += piece.length
      if (isNew < piece.length) yield piece.subarray(isNew)
    }
  }

  async #first<T>(attempt: (source: RegistrySource) => Promise<T>): Promise<T> {
    const problems: string[] = []
    for (const source of this.#sources) {
      try {
        return await attempt(source)
      } catch (error) {
        problems.push(`${new URL(source.base).host}: ${reasonOf(error)}`)
      }
    }
    throw new RegistryError(problems.join('; '))
  }

  async #get(source: RegistrySource, path: string, headers: Record<string, string>): Promise<Dispatcher.ResponseData> {
    const url = `${source.base}/v2/${this.#repository}/${path}`
    const answer = await this.#send(url, headers, this.#authorizations.get(source))
    if (answer.statusCode !== 401) return answer
    await discard(answer)
    const authorization = await this.#authorize(source, headerOf(answer, 'www-authenticate'))
    this.#authorizations.set(source, authorization)
    return this.#send(url, headers, authorization)
  }

  /** https://distribution.github.io/distribution/spec/auth/token/ */
  async #authorize({ username, password }: RegistrySource, challenge: string): Promise<string> {
    const basic = username === '' ? undefined : `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
    if (/^basic\b/i.test(challenge) && basic !== undefined) return basic
    if (!/^bearer\b/i.test(challenge))
      throw new RegistryError('it requires a login; add credentials to image_registries')
    const field = (name: string) => new RegExp(`\\b${name}="([^"]{0,2000})"`, 'i').exec(challenge)?.[1]
    const realm = field('realm') ?? ''
    if (!URL.canParse(realm)) throw new RegistryError('its login has no address')
    const url = new URL(realm)
    url.searchParams.set('scope', `repository:${this.#repository}:pull`)
    const service = field('service')
    if (service !== undefined) url.searchParams.set('service', service)
    const answer = await this.#send(url.href, {}, basic)
    if (answer.statusCode !== 200) throw await refused(answer)
    const said = JSON.parse((await readAll(answer, tokenBytesMax, this.#patience)).toString('utf8')) as Record<
      string,
      unknown
    >
    const token = said.token ?? said.access_token
    if (typeof token !== 'string') throw new RegistryError('its login returned no token')
    return `Bearer ${token}`
  }

  /** Follows redirects, as registries send them for layers; credentials stay with their origin. */
  async #send(
    address: string,
    headers: Record<string, string>,
    authorization: string | undefined,
  ): Promise<Dispatcher.ResponseData> {
    let url = new URL(address)
    for (let redirects = 0; redirects <= redirectsMax; redirects++) {
      if (url.protocol === 'http:' && !isLoopback(url)) throw new RegistryError('it is not https')
      const isSame = url.origin === new URL(address).origin
      const answer = await request(url, {
        dispatcher: this.#agent,
        headers: { ...headers, ...(isSame && authorization !== undefined && { authorization }) },
        headersTimeout: this.#patience.answerMs,
        bodyTimeout: this.#patience.answerMs,
      })
      const location = headerOf(answer, 'location')
      if (![301, 302, 303, 307, 308].includes(answer.statusCode) || !URL.canParse(location, url.href)) return answer
      await discard(answer)
      url = new URL(location, url)
    }
    throw new RegistryError('it redirects too often')
  }
}

function headerOf({ headers }: Dispatcher.ResponseData, name: string): string {
  const value = headers[name]
  return Array.isArray(value) ? (value[0] ?? '') : (value ?? '')
}

async function discard({ body }: Dispatcher.ResponseData): Promise<void> {
  await body.dump({ limit: 64 * 1024 }).catch(() => undefined)
}

async function refused(answer: Dispatcher.ResponseData): Promise<RegistryError> {
  await discard(answer)
  return new RegistryError(
    answer.statusCode === 404 ? 'it does not have the image' : `it answered ${answer.statusCode}`,
  )
}

async function readAll({ body }: Dispatcher.ResponseData, most: number, patience: Patience): Promise<Buffer> {
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of notTooSlow(body, patience)) {
    bytes += piece.length
    if (bytes > most) throw new RegistryError(`its answer is larger than ${most} bytes`)
    pieces.push(piece)
  }
  return Buffer.concat(pieces)
}

async function* notTooSlow(
  body: AsyncIterable<unknown>,
  { windowMs, windowBytes }: Patience,
): AsyncGenerator<Buffer, void, undefined> {
  let sinceMs = performance.now()
  let bytes = 0
  for await (const piece of body) {
    const buffer = piece as Buffer
    yield buffer
    bytes += buffer.length
    if (performance.now() - sinceMs < windowMs) continue
    if (bytes < windowBytes) throw new RegistryError('it sends too slowly')
    sinceMs = performance.now()
    bytes = 0
  }
}

/** What the codes of undici mean to an operator. */
const slownesses: Readonly<Record<string, string>> = {
  UND_ERR_CONNECT_TIMEOUT: 'it does not accept connections in time',
  UND_ERR_HEADERS_TIMEOUT: 'it does not answer in time',
  UND_ERR_BODY_TIMEOUT: 'it stopped sending in the middle of an answer',
}

/** Returns why a source failed, for the operator. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'it could not be reached'
  const cause = error.cause instanceof Error ? error.cause : error
  const slowness = 'code' in cause ? slownesses[String(cause.code)] : undefined
  if (slowness !== undefined) return slowness
  return cause.message.slice(0, 300) || 'it could not be reached'
}
