import { hash, randomBytes } from 'node:crypto'
import { BackgroundJob } from '../../base/background-job.ts'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { newId } from '../../base/ids.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import type { KeyRow, Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { KeyEnv } from './key-env.ts'
import type { Profiles } from './profiles.ts'
import type { Vault } from './vault.ts'

/** 256 random bits: the secret cannot be guessed, so a plain hash keeps it. */
const secretBytes = 32

/** Of the random part, how many characters the list shows: enough to tell keys apart, too few to help a guess. */
const shownCharacters = 4

/** How soon the runs of a revoked key are cancelled. The key itself is refused from the revocation on. */
const watchIntervalMs = 250
const retryMaxMs = 5_000

/** A new secret, which is kept nowhere, and what is kept of it. @param region stands in it: `sk-<region>-…`. */
export function newSecret(region: string): { secret: string; secretHash: string; prefix: string } {
  const random = randomBytes(secretBytes).toString('base64url')
  const secret = `sk-${region}-${random}`
  return {
    secret,
    secretHash: hashOf(secret),
    prefix: secret.slice(0, secret.length - random.length + shownCharacters),
  }
}

/** A key that is not written yet, and its secret. */
export function newKeyRow(
  region: string,
  settings: Pick<KeyRow, 'orgId' | 'profile' | 'name'>,
): { row: KeyRow; secret: string } {
  const { secret, ...kept } = newSecret(region)
  return { row: { ...keyWithoutSecret(newId('key'), settings), ...kept }, secret }
}

/** A key that nobody can authenticate with. */
export const keyWithoutSecret = (id: string, settings: Pick<KeyRow, 'orgId' | 'profile' | 'name'>): KeyRow => ({
  id,
  ...settings,
  secretHash: null,
  prefix: null,
  createdAt: timestamp(),
  expiresAt: null,
  env: null,
  tools: null,
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
}

/** Authenticates callers by their keys, and cancels the runs of revoked keys. */
export class Keys {
  readonly #store: Store
  readonly #runner: Runner
  readonly #profiles: Profiles
  readonly #env: KeyEnv
  readonly #log: Log
  readonly #retirement: BackgroundJob

  constructor({ store, runner, profiles, vault, log }: KeyDeps) {
    this.#store = store
    this.#runner = runner
    this.#profiles = profiles
    this.#env = new KeyEnv(vault)
    this.#log = log
    this.#retirement = new BackgroundJob({
      everyMs: watchIntervalMs,
      retryMaxMs,
      work: () => this.#retire(),
      // A runner that is away has no slots of the key; it is asked again when it is back.
      onFault: (error) => error instanceof Refusal || fault(error, log),
    })
  }

  /**
   * BOUNDARY: whom a secret belongs to. It is looked up by its hash, so how long that takes tells nothing about any
   * secret, and it is looked up each time, so that nothing remembers a key beyond its revocation.
   * @throws Refusal `unauthorized`, `profile_gone`.
   */
  async authenticate(secret: string): Promise<Caller> {
    const key = await this.#find(hashOf(secret))
    if (key === undefined || !isLive(key)) throw new Refusal('unauthorized')
    return this.#toCaller(key)
  }

  /**
   * Who has a key, for what was signed in its name.
   * @throws Refusal `link_invalid` when it does not live any more, `profile_gone`.
   */
  async callerOf(keyId: string): Promise<Caller> {
    const key = await this.#store.keys.get(keyId)
    if (key === undefined || !isLive(key)) throw new Refusal('link_invalid')
    return this.#toCaller(key)
  }

  async #toCaller(key: KeyRow): Promise<Caller> {
    const { id, orgId, tools } = key
    const profile = await this.#profiles.get(orgId, key.profile)
    if (profile === undefined) throw new Refusal('profile_gone', { profile: key.profile })
    return { orgId, keyId: id, profile, env: this.#env.of(key), tools: tools === null ? null : readNames(tools) }
  }

  /** By its secret, or by the one before for as long as that is good. */
  async #find(secretHash: string): Promise<KeyRow | undefined> {
    const key = await this.#store.keys.findBySecretHash(secretHash)
    if (key) return key
    const rotated = await this.#store.keys.findByPreviousHash(secretHash)
    return rotated && !isOver(rotated.previousUntil) ? rotated : undefined
  }

  /** Starts retiring keys that have expired or were revoked, by any process. */
  startWatching(): void {
    this.#retirement.start()
  }

  stop(): Promise<void> {
    return this.#retirement.stop()
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
      await this.#runner.retireKey(id)
      if (going.has(id)) continue
      await this.#store.keys.setRetired(id, timestamp())
      this.#log.info({ key_id: id }, 'revoked key fully retired')
    }
  }
}
