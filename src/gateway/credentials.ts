import { LRUCache } from 'lru-cache'
import { Refusal } from '../base/errors.ts'
import type { UpstreamCredential } from '../core/upstreams/secrets.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'

/** The URL, headers and body change that authenticate one request. */
export interface Authorized {
  /** Address of the upstream; includes the credential if it is sent in the query. Shared, so it must not be changed. */
  url: Readonly<URL>
  headers: Record<string, string>
  /** Adds the credential to a message; `undefined` if it is not sent in the body. */
  intoBody: ((message: unknown) => void) | undefined
}

/** Maximum number of parsed addresses that are cached. */
const urlsMax = 1_000

/** Distributes requests over the values of each credential. */
export class Credentials {
  /** Index of the next value, by ID of the upstream. */
  readonly #turns = new Map<string, number>()
  /** Addresses without credentials. */
  readonly #urls = new LRUCache<string, URL>({ max: urlsMax })

  /**
   * Returns how to authenticate the next request to an upstream. Uses the values of its credential in turn.
   * @throws Refusal `upstream_misconfigured` if the credential has no value.
   */
  authorize(target: UpstreamTarget): Authorized {
    const { credential, headers } = target.secrets
    const url = this.#urls.get(target.url) ?? new URL(target.url)
    this.#urls.set(target.url, url)
    if (credential === null) return { url, headers: { ...headers }, intoBody: undefined }
    const value = this.#next(target, credential)
    switch (credential.in) {
      case 'header':
        return { url, headers: { ...headers, [credential.name]: value }, intoBody: undefined }
      case 'query': {
        const own = new URL(url)
        own.searchParams.set(credential.name, value)
        return { url: own, headers: { ...headers }, intoBody: undefined }
      }
      case 'env':
        throw new Refusal('upstream_misconfigured', {
          ...{ upstream: target.name, problem: 'its credential is a variable, which only a program has' },
        })
      case 'body':
        return { url, headers: { ...headers }, intoBody: (message) => setPath(message, credential.name, value) }
    }
  }

  #next({ id, name }: UpstreamTarget, { prefix, values }: UpstreamCredential): string {
    const turn = this.#turns.get(id) ?? 0
    const value = values[turn % Math.max(values.length, 1)]
    if (value === undefined || value === '') {
      throw new Refusal('upstream_misconfigured', { upstream: name, problem: 'its credential has no value' })
    }
    this.#turns.set(id, (turn + 1) % values.length)
    return prefix + value
  }
}

/** Sets a value at a path such as `params.arguments.api_key`, and creates missing objects. */
function setPath(message: unknown, path: string, value: string): void {
  if (!isObject(message)) return
  const names = path.split('.')
  const last = names.pop()!
  let parent = message
  for (const name of names) {
    const child: unknown = Object.hasOwn(parent, name) ? parent[name] : undefined
    if (isObject(child)) parent = child
    else {
      const made: Record<string, unknown> = {}
      define(parent, name, made)
      parent = made
    }
  }
  define(parent, last, value)
}

/** Defines an own property, even if its name is `__proto__`. */
const define = (object: object, name: string, value: unknown): void => {
  Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true })
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
