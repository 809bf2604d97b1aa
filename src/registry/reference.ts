import { Refusal } from '../base/errors.ts'
import { isImageName } from '../base/image.ts'

/** A parsed reference to an image in a registry. */
export interface Reference {
  registry: string
  repository: string
  /** Tag or digest, as it is requested. */
  version: string
  digest: string | undefined
}

/** The registry of names without one, and what it prefixes to names without a slash, as every client does. */
const usualHost = 'docker.io'
const usualPrefix = 'library/'

/**
 * Parses `[registry[:port]/]path[:tag][@digest]`. The first part is a registry if it contains a dot or a colon, or is
 * `localhost`.
 * @throws Refusal image_invalid.
 */
export function parseReference(name: string): Reference {
  if (!isImageName(name))
    throw new Refusal('image_invalid', { image: name.slice(0, 128), problem: 'its name is invalid' })
  const [named = '', digest] = name.split('@')
  const slash = named.indexOf('/')
  const first = slash < 0 ? '' : named.slice(0, slash)
  const hasRegistry = first === 'localhost' || /[.:]/.test(first)
  const host = hasRegistry ? first : usualHost
  const rest = hasRegistry ? named.slice(slash + 1) : named
  const [path = '', tag = 'latest'] = rest.split(':')
  const repository = host === usualHost && !path.includes('/') ? usualPrefix + path : path
  return { registry: host, repository, version: digest ?? tag, digest }
}

/** Where a registry is reached, in the order in which addresses are tried. */
export interface RegistrySource {
  /** Origin and path, without `/v2`. */
  base: string
  username: string
  password: string
}

const usualHosts: Readonly<Record<string, string>> = { 'docker.io': 'registry-1.docker.io' }

const loopback = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/

/** Whether an address may be used without TLS. */
export const isLoopback = (url: URL): boolean => loopback.test(url.hostname)

/**
 * Returns the addresses of a registry.
 * @param configured from `image_registries`: addresses with credentials, separated by spaces.
 */
export function sourcesOf(registry: string, configured: Readonly<Record<string, string>>): RegistrySource[] {
  const addresses = configured[registry]?.trim().split(/\s+/) ?? [`https://${usualHosts[registry] ?? registry}`]
  return addresses.map((address) => {
    const url = new URL(address)
    const { username, password, origin, pathname } = url
    return {
      base: origin + pathname.replace(/\/+$/, ''),
      username: decodeURIComponent(username),
      password: decodeURIComponent(password),
    }
  })
}

/** Returns what is wrong with `image_registries`, or `undefined`. */
export function registriesProblem(configured: Readonly<Record<string, string>>): string | undefined {
  for (const [registry, addresses] of Object.entries(configured)) {
    for (const address of addresses.trim().split(/\s+/)) {
      if (!URL.canParse(address)) return `an address of ${registry} is not an URL`
      const url = new URL(address)
      if (url.protocol === 'http:' && !isLoopback(url))
        return `an address of ${registry} uses http, which is for loopback only`
      if (!['http:', 'https:'].includes(url.protocol)) return `an address of ${registry} is neither https nor http`
    }
  }
  return undefined
}
