import { hash, randomBytes } from 'node:crypto'
import { timestamp } from '../base/clock.ts'
import { Refusal } from '../base/errors.ts'
import { newId } from '../base/ids.ts'
import type { Profile } from '../base/profile.ts'
import { fault, type Log } from '../observe/log.ts'
import type { Runner } from '../runner/messages.ts'
import type { KeyRow, OrgRow, Store } from '../store/store.ts'
import type { Caller } from './caller.ts'

/** 256 random bits: the secret cannot be guessed, so a plain hash keeps it. */
const secretBytes = 32

/** Of the random part, how many characters the list shows: enough to tell keys apart, too few to help a guess. */
const shownCharacters = 4

/** How soon what a revoked key has going is ended. The key itself is refused from the revocation on. */
const watchIntervalMs = 250

/** After a look that failed; long enough that a database out of order does not fill the log. */
const retryMs = 2_000

/** What the operator says about a new key. */
export interface KeyRequest {
  /** Name of the org it belongs to; the org is made when it is new. */
  org: string
  /** Name of a profile of the configuration. */
  profile: string
  /** For people alone; may be empty. */
  name: string
}

/**
 * Makes a key.
 * @param region stands in the secret: `sk-<region>-…`.
 * @returns its row, and the secret, which is kept nowhere.
 * @throws Refusal `invalid_argument`.
 */
export async function createKey(
  store: Store,
  region: string,
  { org, profile, name }: KeyRequest,
): Promise<{ key: KeyRow; secret: string }> {
  checkName('org', org)
  if (name !== '') checkName('name', name)
  const random = randomBytes(secretBytes).toString('base64url')
  const secret = `sk-${region}-${random}`
  const createdAt = timestamp()
  const { id: orgId } = await store.orgs.ensureNamed({ id: newId('org'), name: org, createdAt })
  const key: KeyRow = {
    id: newId('key'),
    orgId,
    name,
    profile,
    secretHash: hashOf(secret),
    prefix: secret.slice(0, secret.length - random.length + shownCharacters),
    createdAt,
    revokedAt: null,
    retiredAt: null,
  }
  await store.keys.ensure(key)
  return { key, secret }
}

/** Every key that has a secret, by org and age. @param orgName of one org alone. */
export async function listKeys(store: Store, orgName?: string): Promise<{ key: KeyRow; org: OrgRow }[]> {
  const orgs = (await store.orgs.list()).filter(({ name }) => orgName === undefined || name === orgName)
  const lists = await Promise.all(orgs.map(async (org) => (await store.keys.list(org.id)).map((key) => ({ key, org }))))
  return lists.flat().filter(({ key }) => key.secretHash !== null)
}

/** Revokes a key for good. The front that serves refuses it from now on and ends all that it has going. */
export async function revokeKey(store: Store, id: string): Promise<'revoked' | 'revoked_before' | 'unknown'> {
  const key = await store.keys.get(id)
  if (key === undefined || key.secretHash === null) return 'unknown'
  return (await store.keys.revoke(id, timestamp())) ? 'revoked' : 'revoked_before'
}

/** A name is printed in lists and logs, so it holds nothing that moves a cursor. */
function checkName(field: string, name: string): void {
  if (/^[^\p{C}\p{Zl}\p{Zp}]{1,64}$/u.test(name) && name.trim() === name) return
  throw new Refusal('invalid_argument', {
    field,
    problem: 'must be 1 to 64 printable characters, no space around them',
  })
}

const hashOf = (secret: string): string => hash('sha256', secret)

/** Knows callers by their keys, and ends what a revoked key has going. */
export class Keys {
  readonly #store: Store
  readonly #runner: Runner
  readonly #profiles: ReadonlyMap<string, Profile>
  readonly #log: Log
  #watch: NodeJS.Timeout | undefined
  #retiring: Promise<void> | undefined
  #retryAtMs = 0

  constructor(store: Store, runner: Runner, profiles: readonly Profile[], log: Log) {
    this.#store = store
    this.#runner = runner
    this.#profiles = new Map(profiles.map((profile) => [profile.name, profile]))
    this.#log = log
  }

  /**
   * BOUNDARY: whom a secret belongs to. It is looked up by its hash, so how long that takes tells nothing about any
   * secret, and it is looked up each time, so that nothing remembers a key beyond its revocation.
   * @throws Refusal `unauthorized`, `profile_gone`.
   */
  async authenticate(secret: string): Promise<Caller> {
    const key = await this.#store.keys.findBySecretHash(hashOf(secret))
    if (key === undefined || key.revokedAt !== null) throw new Refusal('unauthorized')
    const profile = this.#profiles.get(key.profile)
    if (profile === undefined) throw new Refusal('profile_gone', { profile: key.profile })
    return { orgId: key.orgId, keyId: key.id, profile }
  }

  /** From now on keys that were revoked, by whatever process, are retired. */
  startWatching(): void {
    this.#watch = setInterval(() => this.#look(), watchIntervalMs).unref()
  }

  async stop(): Promise<void> {
    clearInterval(this.#watch)
    await this.#retiring
  }

  #look(): void {
    if (this.#retiring || performance.now() < this.#retryAtMs) return
    this.#retiring = this.#retire()
      .catch((error: unknown) => {
        this.#retryAtMs = performance.now() + retryMs
        // A runner that is away has no slots of the key; when it is back it is asked again.
        if (!(error instanceof Refusal)) fault(error, this.#log)
      })
      .finally(() => {
        this.#retiring = undefined
      })
  }

  /**
   * Ends what revoked keys have going. What is unfinished is read before the runner is asked: a run whose row comes
   * later finds its key revoked and does not start, one that was there is looked at again next time.
   */
  async #retire(): Promise<void> {
    const revoked = await this.#store.keys.notRetired()
    if (revoked.length === 0) return
    const going = new Set((await this.#store.runs.unfinished()).map(({ keyId }) => keyId))
    for (const { id } of revoked) {
      await this.#runner.retireKey(id)
      if (going.has(id)) continue
      await this.#store.keys.setRetired(id, timestamp())
      this.#log.info({ key_id: id }, 'a revoked key has nothing left')
    }
  }
}
