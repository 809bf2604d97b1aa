import { Refusal } from '../base/errors.ts'
import type { UpstreamCredential } from '../core/upstreams/secrets.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'

/** What a credential adds to one request. */
export interface Authorized {
  /** With the credential in the query, if it belongs there. */
  url: URL
  headers: Record<string, string>
  /** Adds the credential to a message; absent where it belongs elsewhere. */
  intoBody: ((message: unknown) => void) | undefined
}

/** Distributes requests over the values of each credential. */
export class Credentials {
  /** Requests by upstream. There are as many entries as upstreams. */
  readonly #turns = new Map<string, number>()

  /** @throws Refusal `upstream_misconfigured` where the credential has no value. */
  authorize(target: UpstreamTarget): Authorized {
    const { credential, headers } = target.secrets
    const url = new URL(target.url)
    if (credential === null) return { url, headers: { ...headers }, intoBody: undefined }
    const value = this.#next(target, credential)
    switch (credential.in) {
      case 'header':
        return { url, headers: { ...headers, [credential.name]: value }, intoBody: undefined }
      case 'query':
        url.searchParams.set(credential.name, value)
        return { url, headers: { ...headers }, intoBody: undefined }
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

/** Sets a value at a path such as `params.arguments.api_key`, and creates the objects on the way. */
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

/** Also for names such as `__proto__`. */
const define = (object: object, name: string, value: unknown): void => {
  Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true })
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const redacted = '[redacted]'

/** Replaces every secret of an upstream in a text from it, also in its URL-encoded and base64 forms. */
export function redactSecrets(text: string, { secrets }: Pick<UpstreamTarget, 'secrets'>): string {
  const values = [...Object.values(secrets.headers), ...(secrets.credential?.values ?? [])]
  let clean = text
  for (const value of values.filter(({ length }) => length >= 4)) {
    const base64 = Buffer.from(value).toString('base64')
    for (const form of [value, encodeURIComponent(value), base64, base64.replaceAll('=', '')]) {
      clean = clean.replaceAll(form, redacted)
    }
  }
  return clean
}
