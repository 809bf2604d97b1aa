import { Refusal } from '../../base/errors.ts'
import type { JailNetwork } from '../../base/network.ts'
import type { NetworkSecret, SecretPlace } from '../../base/network-secrets.ts'
import type { Profile } from '../../base/profile.ts'
import type { NetworkSecretRow } from '../../store/network-secrets.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import type { Vault } from './vault.ts'

export const placeOfNetworkSecret = (orgId: string, name: string): string => `network_secrets/${orgId}/${name}/value`

/** The network of a run or of a sandbox, with what its programs see of its secrets. */
export interface OpenedNetwork {
  network?: JailNetwork
  /** Placeholders, by the names of variables. */
  env: Readonly<Record<string, string>>
}

/** Opens the secrets of an organization that a profile names. */
export class NetworkSecrets {
  readonly #store: Store
  readonly #vault: Vault

  constructor(store: Store, vault: Vault) {
    this.#store = store
    this.#vault = vault
  }

  /** @param chosen the secrets of the profile that are used; absent: all of them. @throws Refusal secret_missing. */
  async networkOf(
    { orgId, profile }: Pick<Caller, 'orgId'> & { profile: Profile },
    chosen?: readonly string[],
  ): Promise<OpenedNetwork> {
    const { network } = profile
    const names = namesOf(profile, chosen)
    if (network === undefined) return { env: {} }
    if (names.length === 0) return { network, env: {} }
    const opened = await this.availableOf({ orgId, profile }, chosen)
    const missing = names.find((name) => opened.env[name] === undefined)
    if (missing !== undefined) throw new Refusal('secret_missing', { secret: missing })
    return opened
  }

  /** The same without those secrets that do not exist. */
  async availableOf(
    { orgId, profile }: Pick<Caller, 'orgId'> & { profile: Profile },
    chosen?: readonly string[],
  ): Promise<OpenedNetwork> {
    const { network } = profile
    if (network === undefined) return { env: {} }
    const names = namesOf(profile, chosen)
    const rows = await this.#store.networkSecrets.ofNames(orgId, names)
    return {
      network: rows.length === 0 ? network : { ...network, secrets: rows.map((row) => this.#toSecret(row)) },
      env: Object.fromEntries(rows.map(({ name, placeholder }) => [name, placeholder])),
    }
  }

  #toSecret({ orgId, name, placeholder, hosts, places, value }: NetworkSecretRow): NetworkSecret {
    return {
      ...{ name, placeholder },
      value: this.#vault.open(placeOfNetworkSecret(orgId, name), value),
      hosts: JSON.parse(hosts) as string[],
      places: JSON.parse(places) as SecretPlace[],
    }
  }
}

/** A profile that has changed no longer gives what it does not name. */
const namesOf = ({ secrets = [] }: Profile, chosen: readonly string[] | undefined): readonly string[] =>
  chosen === undefined ? secrets : secrets.filter((name) => chosen.includes(name))
