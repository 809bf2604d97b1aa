import { hash, randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { BackgroundJob } from '../../base/background-job.ts'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { KeyRow, Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import type { UpstreamPolicy } from '../upstreams/policy.ts'
import { KeyEnv } from './key-env.ts'
import type { Profiles } from './profiles.ts'
import type { Vault } from './vault.ts'

/** 256 random bits cannot be guessed, so a plain hash is enough to store them. */
const secretBytes = 32

/** Number of random characters that lists show: enough to distinguish keys, too few to help in guessing one. */
const shownCharacters = 4

/** Maximum number of keys whose rows are cached. */
const knownMax = 10_000

/** Interval for cancelling the runs of revoked keys. The key itself is refused immediately. */
const watchIntervalMs = 250
const retryMaxMs = 5_000

/** Forms of secrets: `sk-<region>-…`, or the form that the clients of microsandbox know, `msb_…`. */
export const secretForms = ['glovebox', 'microsandbox'] as const
export type SecretForm = (typeof secretForms)[number]

const microsandboxStart = 'msb_'

/** Returns the form of the secret of a key, which a new secret of the same key keeps. */
export const formOf = ({ prefix }: Pick<KeyRow, 'prefix'>): SecretForm =>
  prefix?.startsWith(microsandboxStart) ? 'microsandbox' : 'glovebox'

/** Creates a secret, with the hash and the prefix that are stored. @param region part of a secret of Glovebox. */
export function newSecret(region: string, form: SecretForm): { secret: string; secretHash: string; prefix: string } {
  const random = randomBytes(secretBytes).toString('base64url')
  const secret = `${form === 'microsandbox' ? microsandboxStart : `sk-${region}-`}${random}`
  return {
    secret,
    secretHash: hashOf(secret),
    prefix: secret.slice(0, secret.length - random.length + shownCharacters),
  }
}

/** Creates a key: its secret, and a row that the caller must write. */
export function newKeyRow(
  region: string,
  settings: Pick<KeyRow, 'orgId' | 'profile' | 'name'>,
  form: SecretForm,
): { row: KeyRow; secret: string } {
  const { secret, ...kept } = newSecret(region, form)
  return { row: { ...keyWithoutSecret(newId('key'), settings), ...kept }, secret }
}

/** Creates the row of a key that cannot be used to authenticate. */
export const keyWithoutSecret = (id: string, settings: Pick<KeyRow, 'orgId' | 'profile' | 'name'>): KeyRow => ({
  id,
  ...settings,
  secretHash: null,
  prefix: null,
  createdAt: timestamp(),
  expiresAt: null,
  env: null,
  tools: null,
  upstreamPolicy: null,
  namespaces: null,
  previousHash: null,
  previousUntil: null,
  revokedAt: null,
  retiredAt: null,
})

const hashOf = (secret: string): string => hash('sha256', secret)

const isLive = ({ revokedAt, expiresAt }: KeyRow): boolean => revokedAt === null && !isOver(expiresAt)

const isOver = (time: string | null): boolean => time !== null && time <= timestamp()

const readNames = (json: string): readonly string[] => JSON.parse(json) as string[]

export interface KeyDeps {
  store: Store
  runner: Runner
  profiles: Profiles
  vault: Vault
  log: Log
  /** Ends what a revoked key has open, besides its runs. Called again until the key is retired. */
  retired(keyId: string): Promise<void>
}

/** A key as the database had it at a version. */
interface KnownKey {
  key: KeyRow
  caller: Caller
  /** When the secret stops being valid, as ISO 8601; `null` if it is the current one of its key. */
  until: string | null
  version: string | undefined
}

/** Authenticates callers by their keys, and cancels the runs of revoked keys. */
export class Keys {
  readonly #store: Store
  readonly #runner: Runner
  readonly #profiles: Profiles
  readonly #env: KeyEnv
  readonly #log: Log
  readonly #retired: KeyDeps['retired']
  readonly retirement: BackgroundJob
  /** By hash of the secret. */
  readonly #known = new LRUCache<string, KnownKey>({ max: knownMax })

  constructor({ store, runner, profiles, vault, log, retired }: KeyDeps) {
    this.#retired = retired
    this.#store = store
    this.#runner = runner
    this.#profiles = profiles
    this.#env = new KeyEnv(vault)
    this.#log = log
    this.retirement = new BackgroundJob({
      everyMs: watchIntervalMs,
      retryMaxMs,
      work: () => this.#retire(),
      // While the runner is disconnected, the request is refused. It is repeated when the runner reconnects.
      onFault: (error) => error instanceof Refusal || fault(error, log),
    })
  }

  /**
   * BOUNDARY: returns the caller that a secret belongs to. The lookup is by hash, so its timing reveals nothing
   * about any secret. A row is used again only if no process has written to the database since it was read, so a revocation
   * takes effect immediately.
   * @returns the same object until its key may have changed.
   * @throws Refusal `unauthorized`, `profile_gone`.
   */
  async authenticate(secret: string): Promise<Caller> {
    const secretHash = hashOf(secret)
    const version = this.#store.version()
    const known = this.#known.get(secretHash)
    if (known !== undefined && version !== undefined && known.version === version) {
      if (!isLive(known.key) || isOver(known.until)) throw new Refusal('unauthorized')
      if ((await this.#profiles.get(known.key.orgId, known.key.profile)) === known.caller.profile) return known.caller
    }
    const found = await this.#find(secretHash)
    if (found === undefined || !isLive(found.key)) {
      this.#known.delete(secretHash)
      throw new Refusal('unauthorized')
    }
    const caller = await this.#toCaller(found.key)
    this.#known.set(secretHash, { ...found, caller, version })
    return caller
  }

  /**
   * Returns the caller that a key belongs to, for links that were signed for it.
   * @throws Refusal `link_invalid` when the key is no longer valid, `profile_gone`.
   */
  async callerOf(keyId: string): Promise<Caller> {
    const key = await this.#store.keys.get(keyId)
    if (key === undefined || !isLive(key)) throw new Refusal('link_invalid')
    return this.#toCaller(key)
  }

  async #toCaller(key: KeyRow): Promise<Caller> {
    const { id, orgId, tools, upstreamPolicy, namespaces } = key
    const profile = await this.#profiles.get(orgId, key.profile)
    if (profile === undefined) throw new Refusal('profile_gone', { profile: key.profile })
    return {
      ...{ orgId, keyId: id, profile, env: this.#env.of(key), tools: tools === null ? null : readNames(tools) },
      upstreamPolicy: upstreamPolicy === null ? null : (JSON.parse(upstreamPolicy) as UpstreamPolicy),
      ...(namespaces !== null && { namespaces: readNames(namespaces) }),
    }
  }

  /** Finds a key by its secret, or by the previous one while that is valid. */
  async #find(secretHash: string): Promise<Pick<KnownKey, 'key' | 'until'> | undefined> {
    const key = await this.#store.keys.findBySecretHash(secretHash)
    if (key) return { key, until: null }
    const rotated = await this.#store.keys.findByPreviousHash(secretHash)
    return rotated && !isOver(rotated.previousUntil) ? { key: rotated, until: rotated.previousUntil } : undefined
  }

  /** Starts to retire keys that have expired or that any process has revoked. */
  startWatching(): void {
    this.retirement.start()
  }

  stop(): Promise<void> {
    return this.retirement.stop()
  }

  /**
   * Cancels the runs of revoked keys and destroys their slots. Unfinished runs are read before the runner is asked: a
   * run whose row is written later finds its key revoked and does not start; one that was there is checked again in the
   * next round.
   */
  async #retire(): Promise<void> {
    await this.#store.keys.expire(timestamp())
    const revoked = await this.#store.keys.notRetired()
    if (revoked.length === 0) return
    const going = new Set((await this.#store.runs.unfinished()).map(({ keyId }) => keyId))
    for (const { id } of revoked) {
      await this.#retired(id)
      await this.#runner.retireKey(id)
      if (going.has(id)) continue
      await this.#store.keys.setRetired(id, timestamp())
      this.#log.info({ key_id: id }, 'revoked key fully retired')
    }
  }
}
