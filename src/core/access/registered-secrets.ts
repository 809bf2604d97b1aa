import { LRUCache } from 'lru-cache'
import { isSecretName } from '../../base/redaction/assignments.ts'
import { type RegisteredSecret, registeredMaxTotal } from '../../base/redaction/registered.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { ReadCache } from '../read-cache.ts'
import { openSecrets } from '../upstreams/secrets.ts'
import { placeOfCredential, type StoredCredential } from '../upstreams/stored-credentials.ts'
import { placeOfNetworkSecret } from './network-secrets.ts'
import type { Vault } from './vault.ts'

/** Maximum number of organizations whose secrets are cached. */
const max = 1_000
/** More rows of one kind are not read. */
const rowsMax = 1_000

/** A stored secret, sealed. */
interface Sealed {
  sealed: string
  open(): RegisteredSecret[]
}

/**
 * The values that an organization has given to this server and that no program should print: secrets for the network, and
 * credentials for upstreams with the tokens of their logins.
 */
export class RegisteredSecretsOfOrgs {
  readonly #store: Pick<Store, 'version' | 'networkSecrets' | 'upstreams' | 'upstreamCredentials'>
  readonly #vault: Vault
  readonly #ofOrgs: ReadCache<readonly RegisteredSecret[]>
  readonly #opened = new LRUCache<string, { sealed: string; secrets: readonly RegisteredSecret[] }>({ max })

  constructor(store: Pick<Store, 'version' | 'networkSecrets' | 'upstreams' | 'upstreamCredentials'>, vault: Vault) {
    this.#store = store
    this.#vault = vault
    this.#ofOrgs = new ReadCache(store, max, (orgId) => this.#read(orgId))
  }

  /** Returns the secrets of the caller's organization: the same array until one changes. */
  of({ orgId }: Pick<Caller, 'orgId'>): Promise<readonly RegisteredSecret[]> {
    return this.#ofOrgs.get(orgId)
  }

  async #read(orgId: string): Promise<readonly RegisteredSecret[]> {
    const rows = [...(await this.#ofNetwork(orgId)), ...(await this.#ofUpstreams(orgId))]
    const sealed = rows.map((row) => row.sealed).join('\n')
    const known = this.#opened.get(orgId)
    if (known?.sealed === sealed) return known.secrets
    const secrets = withinTotal(rows.flatMap((row) => row.open()))
    this.#opened.set(orgId, { sealed, secrets })
    return secrets
  }

  async #ofNetwork(orgId: string): Promise<Sealed[]> {
    const rows = await this.#store.networkSecrets.page(orgId, '', rowsMax)
    return rows.map(({ name, value: sealed }) => ({
      sealed,
      open: () => [{ name, value: this.#vault.open(placeOfNetworkSecret(orgId, name), sealed) }],
    }))
  }

  async #ofUpstreams(orgId: string): Promise<Sealed[]> {
    const upstreams = await this.#store.upstreams.page(orgId, '', rowsMax)
    const credentials = await this.#store.upstreamCredentials.ofOrg(orgId, rowsMax)
    const named = new Map(upstreams.map(({ id, name }) => [id, name]))
    return [
      ...upstreams.map(({ id, name, secrets: sealed }) => ({
        sealed,
        open: () => valuesOfUpstream(openSecrets(this.#vault, id, sealed)).map((value) => ({ name, value })),
      })),
      ...credentials.map(({ upstreamId, keyId, secrets: sealed }) => ({
        sealed,
        open: () => {
          const text = this.#vault.open(placeOfCredential({ upstreamId, keyId }, 'secrets'), sealed)
          const name = named.get(upstreamId) ?? 'upstream'
          return valuesOfCredential(JSON.parse(text) as StoredCredential).map((value) => ({ name, value }))
        },
      })),
    ]
  }
}

/** Other headers and variables, such as a version, can be words that occur anywhere. */
const isSecretHeader = (name: string): boolean =>
  isSecretName(name) || /authorization|cookie|key|token|secret/i.test(name)

function valuesOfUpstream({ headers, credential, oauth, env = {} }: ReturnType<typeof openSecrets>): string[] {
  const named = [...Object.entries(headers), ...Object.entries(env)]
  const ofHeaders = named.flatMap(([name, value]) => (isSecretHeader(name) ? [value] : []))
  const ofOAuth = oauth?.clientSecret ? [oauth.clientSecret] : []
  return [...ofHeaders.map(withoutScheme), ...(credential?.values ?? []).map(withoutScheme), ...ofOAuth]
}

function valuesOfCredential(credential: StoredCredential): string[] {
  if (credential.kind === 'values') return credential.values.map(withoutScheme)
  const { accessToken, refreshToken, client } = credential
  return [accessToken, refreshToken, client.client_secret].filter((value) => typeof value === 'string')
}

/** `Bearer VALUE` is also printed without its scheme. */
const withoutScheme = (value: string): string => /^(?:bearer|basic|token|apikey) +(\S.*)$/i.exec(value)?.[1] ?? value

/** Limited, since each value is searched in several forms. */
function withinTotal(secrets: readonly RegisteredSecret[]): readonly RegisteredSecret[] {
  let total = 0
  return secrets.filter(({ value }) => {
    total += value.length
    return total <= registeredMaxTotal
  })
}
