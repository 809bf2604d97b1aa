import type { Caller } from '../caller.ts'
import { checkedCount, checkSecret, invalid, valuesMax } from './checks.ts'
import type { LoginInstructions, LoginMethod, UpstreamLogins } from './logins.ts'
import type { StoredCredential, StoredCredentials } from './stored-credentials.ts'
import type { Upstreams } from './upstreams.ts'

/** The capability that each operation requires. */
export const ownCredentialNeeds = {
  set: 'upstreams.call',
  remove: 'upstreams.call',
  login: 'upstreams.call',
  complete: 'upstreams.call',
} as const

/** The credentials that keys have of their own for upstreams, beside those of their organization. */
export class OwnCredentials {
  readonly #upstreams: Upstreams
  readonly #credentials: StoredCredentials
  readonly #logins: UpstreamLogins

  constructor(upstreams: Upstreams, credentials: StoredCredentials, logins: UpstreamLogins) {
    this.#upstreams = upstreams
    this.#credentials = credentials
    this.#logins = logins
  }

  /**
   * Sets the values that calls of this key use in place of those of the organization.
   * @throws Refusal `upstream_unknown`, `invalid_argument`.
   */
  async set(caller: Caller, name: string, values: readonly string[]): Promise<void> {
    const { id, secrets } = await this.#upstreams.ownTarget(caller, name)
    if (secrets.credential === null) throw invalid('values', `are not used by ${name}, which has no credential`)
    for (const value of checkedCount('values', values, valuesMax)) checkSecret('values', value)
    if (values.length === 0) throw invalid('values', 'must have an entry')
    const credential: StoredCredential = { kind: 'values', values: [...values] }
    await this.#credentials.put({ upstreamId: id, keyId: caller.keyId }, credential)
  }

  /** Removes the credential of this key. @returns whether there was one. @throws Refusal `upstream_unknown`. */
  async remove(caller: Caller, name: string): Promise<boolean> {
    const { id } = await this.#upstreams.ownTarget(caller, name)
    return this.#credentials.remove({ upstreamId: id, keyId: caller.keyId })
  }

  /** Begins a login; see `UpstreamLogins`. @throws Refusal `upstream_unknown`, `invalid_argument`, `upstream_login_failed`. */
  async login(caller: Caller, name: string, method: LoginMethod): Promise<LoginInstructions> {
    return this.#logins.begin(await this.#upstreams.ownTarget(caller, name), caller.keyId, method)
  }

  /** Completes a login; see `UpstreamLogins`. */
  async complete(caller: Caller, name: string, redirectedTo: string | undefined): Promise<boolean> {
    return this.#logins.complete(await this.#upstreams.ownTarget(caller, name), caller.keyId, redirectedTo)
  }
}
