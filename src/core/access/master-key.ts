/** Reads, checks and replaces the master key. */
import { randomBytes } from 'node:crypto'
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { syncDirectory } from '../../base/durable-directory.ts'
import { StartRefused } from '../../base/errors.ts'
import type { Store } from '../../store/store.ts'
import { placeOfSandboxEnv } from '../sandboxes/settings.ts'
import { placeOfUpstream } from '../upstreams/secrets.ts'
import { placeOfCredential } from '../upstreams/stored-credentials.ts'
import { placeOfEnv } from './key-env.ts'
import { placeOfNetworkSecret } from './network-secrets.ts'
import { placeOfProfile } from './profiles.ts'
import { masterKeyBytes, SealBroken, Vault } from './vault.ts'

export interface MasterKeySource {
  /** Base64 of 32 bytes; empty to use the file. */
  value: string
  /** File with the same content; created if it is missing. */
  file: string
}

/**
 * Returns where the master key of an instance comes from.
 * @param settings `masterKeyFile`: empty for `master.key` in the home directory of the front.
 */
export const masterKeySource = (
  { masterKey, masterKeyFile }: { masterKey: string; masterKeyFile: string },
  frontHome: string,
): MasterKeySource => ({ value: masterKey, file: masterKeyFile || join(frontHome, 'master.key') })

/** Name of a known text that only the key of this database can decrypt. */
const checkName = 'master_key_check'
const checkText = 'glovebox'
const secretPlace = (name: string): string => `secrets/${name}/value`

/**
 * Opens the vault of this database. The first start creates the key.
 * @throws StartRefused if the key is malformed, or is not the key that encrypted the rows.
 */
export async function openVault(store: Store, source: MasterKeySource): Promise<Vault> {
  if (source.value !== '') return checked(store, new Vault(decode(source.value, 'GLOVEBOX_MASTER_KEY')), source)
  const next = `${source.file}.next`
  const text = readIfThere(source.file)
  const vault = new Vault(text === undefined ? await make(store, source.file) : decode(text, source.file))
  // An interrupted replacement leaves the new key beside the old one.
  const left = readIfThere(next)
  if (left === undefined) return checked(store, vault, source)
  const replaced = new Vault(decode(left, next))
  if (await opens(store, replaced)) {
    renameSync(next, source.file)
    return replaced
  }
  rmSync(next)
  return checked(store, vault, source)
}

async function make(store: Store, file: string): Promise<Buffer> {
  if ((await store.secrets.all()).some(({ name }) => name === checkName)) {
    throw new StartRefused(
      `The master key ${file} is missing, and secrets in the database are encrypted with it.`,
      'Restore the file, or name its place with --master-key-file.',
    )
  }
  const key = randomBytes(masterKeyBytes)
  writeSafely(file, key)
  return key
}

/** Writes the key and syncs it to disk, so that it is durable before it is used. */
function writeSafely(file: string, key: Buffer): void {
  const descriptor = create(file)
  writeSync(descriptor, `${key.toString('base64')}\n`)
  fsyncSync(descriptor)
  closeSync(descriptor)
  syncDirectory(dirname(file))
}

const remedy = 'It, and the directory that it is made in, must belong to the user of the front (front_uid).'

function create(file: string): number {
  try {
    return openSync(file, 'wx', 0o600)
  } catch (error) {
    throw new StartRefused(`Cannot create the master key ${file}: ${(error as Error).message}.`, remedy)
  }
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new StartRefused(`Cannot read the master key ${file}: ${(error as Error).message}.`, remedy)
  }
}

function decode(text: string, place: string): Buffer {
  const key = Buffer.from(text.trim(), 'base64')
  if (key.length === masterKeyBytes && key.toString('base64') === text.trim()) return key
  throw new StartRefused(`${place} does not contain 32 bytes in base64.`, 'Create one with: openssl rand -base64 32')
}

async function opens(store: Store, vault: Vault): Promise<boolean> {
  const sealed = await store.secrets.ensure(checkName, vault.seal(secretPlace(checkName), checkText))
  try {
    return vault.open(secretPlace(checkName), sealed) === checkText
  } catch (error) {
    if (error instanceof SealBroken) return false
    throw error
  }
}

async function checked(store: Store, vault: Vault, { value, file }: MasterKeySource): Promise<Vault> {
  if (await opens(store, vault)) return vault
  throw new StartRefused(
    `The master key ${value === '' ? `in ${file}` : 'of GLOVEBOX_MASTER_KEY'} does not match the key that encrypts the secrets in the database.`,
    'Use the key that was used before. Without it, the secrets in the database cannot be decrypted.',
  )
}

/** Returns a secret of the product itself, sealed in its row. Stores `value` if the secret does not exist yet. */
export async function ensureSecret(store: Store, vault: Vault, name: string, value: string): Promise<string> {
  return vault.open(secretPlace(name), await store.secrets.ensure(name, vault.seal(secretPlace(name), value)))
}

/** Returns the row of a secret of the product itself. */
export const sealedSecret = (vault: Vault, name: string, value: string): { name: string; value: string } => ({
  name,
  value: vault.seal(secretPlace(name), value),
})

/**
 * Replaces the master key and encrypts all secrets with the new one, atomically. The server must be stopped.
 * @throws StartRefused if the key is given by value, since only the operator can replace it then.
 */
export async function replaceMasterKey(store: Store, source: MasterKeySource): Promise<void> {
  if (source.value !== '') {
    throw new StartRefused('The master key is set by GLOVEBOX_MASTER_KEY.', 'Set it as a file to have it replaced.')
  }
  const old = await openVault(store, source)
  const key = randomBytes(masterKeyBytes)
  const fresh = new Vault(key)
  const again = (place: string, sealed: string) => fresh.seal(place, old.open(place, sealed))
  writeSafely(`${source.file}.next`, key)
  await store.reseal({
    secret: ({ name, value }) => again(secretPlace(name), value),
    env: ({ id, env }) => env && again(placeOfEnv(id), env),
    profile: ({ orgId, name, settings }) => again(placeOfProfile(orgId, name), settings),
    upstream: ({ id, secrets }) => again(placeOfUpstream(id), secrets),
    upstreamCredential: ({ secrets, pendingLogin, ...row }) => ({
      secrets: secrets && again(placeOfCredential(row, 'secrets'), secrets),
      pendingLogin: pendingLogin && again(placeOfCredential(row, 'pendingLogin'), pendingLogin),
    }),
    networkSecret: ({ orgId, name, value }) => again(placeOfNetworkSecret(orgId, name), value),
    sandbox: ({ id, env }) => env && again(placeOfSandboxEnv(id), env),
  })
  renameSync(`${source.file}.next`, source.file)
}
