import { randomBytes } from 'node:crypto'
import { timestamp } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import {
  isSecretValue,
  parseSecretHost,
  placeholderPrefix,
  type SecretPlace,
  secretHostsMax,
  secretNamePattern,
  secretPlaces,
  secretValueMaxBytes,
  secretValueMinBytes,
} from '../../base/network-secrets.ts'
import type { NetworkSecretRow } from '../../store/network-secrets.ts'
import { placeOfNetworkSecret } from '../access/network-secrets.ts'
import { reservedPrefixes, reservedVariables } from '../access/variables.ts'
import { type Page, type PageRequest, page } from '../paging.ts'
import { hintOf } from '../upstreams/secrets.ts'
import { type Admin, type ChangeContext, requireInOrg, unknown, withAudit } from './admin.ts'

/** Of one organization. */
const secretsMax = 256

/** A secret of an organization without its value. */
export interface SecretView {
  name: string
  /** What programs see in place of the value, in the variable with its name. */
  placeholder: string
  hosts: string[]
  places: SecretPlace[]
  hint: string
  created_at: string
  updated_at: string
}

export interface SecretSettings {
  /** Absent: the stored one is kept. */
  value?: string
  hosts: readonly string[]
  /** Absent: headers. */
  places?: readonly SecretPlace[]
}

/**
 * Creates a secret, or replaces its settings and its value. Running sandboxes use the new ones within a second.
 * @throws Refusal forbidden, not_found, invalid_argument.
 */
export async function putSecret(
  { store, vault }: ChangeContext,
  admin: Admin,
  { orgId, name }: { orgId: string; name: string },
  { value, hosts, places = ['header'] }: SecretSettings,
): Promise<SecretView> {
  await requireInOrg(store, admin, 'admin', orgId)
  checkSecretName(name)
  checkHosts(hosts)
  if (places.length === 0 || places.some((place) => !secretPlaces.includes(place)))
    throw invalid('places', `must contain some of ${secretPlaces.join(', ')}`)
  const known = await store.networkSecrets.get(orgId, name)
  if (value === undefined && known === undefined) throw invalid('value', 'is required for a new secret')
  if (value !== undefined && !isSecretValue(value)) {
    const sizes = `${secretValueMinBytes} to ${secretValueMaxBytes}`
    throw invalid('value', `must be ${sizes} printable ASCII characters without a space at either end`)
  }
  if (known === undefined && (await store.networkSecrets.count(orgId)) >= secretsMax)
    throw invalid('name', `would exceed the maximum of ${secretsMax} secrets`)
  const at = timestamp()
  const row: NetworkSecretRow = {
    ...{ orgId, name, updatedAt: at, createdAt: known?.createdAt ?? at },
    placeholder: known?.placeholder ?? `${placeholderPrefix}${randomBytes(16).toString('hex')}`,
    hosts: JSON.stringify([...new Set(hosts)]),
    places: JSON.stringify(secretPlaces.filter((place) => places.includes(place))),
    value: value === undefined ? known!.value : vault.seal(placeOfNetworkSecret(orgId, name), value),
    hint: value === undefined ? known!.hint : hintOf(value),
  }
  const details = { hosts, places, value_changed: value !== undefined }
  await withAudit(store, { admin, action: 'secret.put', orgId, target: name, details }, (rows) =>
    rows.networkSecrets.put(row),
  )
  return toView(row)
}

/** Lists the secrets of an organization by name, without their values. */
export async function listSecrets(
  { store }: ChangeContext,
  admin: Admin,
  orgId: string,
  asked: PageRequest,
): Promise<Page<SecretView>> {
  await requireInOrg(store, admin, 'member', orgId)
  const { items, nextCursor } = await page(
    asked,
    [''],
    ({ name }: NetworkSecretRow) => [name],
    ([name], limit) => store.networkSecrets.page(orgId, name, limit),
  )
  return { items: items.map(toView), nextCursor }
}

/** @throws Refusal forbidden, not_found. */
export async function getSecret({ store }: ChangeContext, admin: Admin, orgId: string, name: string) {
  await requireInOrg(store, admin, 'member', orgId)
  const row = await store.networkSecrets.get(orgId, name)
  if (row === undefined) throw unknown('secret', name)
  return toView(row)
}

/** Deletes a secret. Runs of profiles that name it are refused then. @throws Refusal forbidden, not_found. */
export async function removeSecret({ store }: ChangeContext, admin: Admin, orgId: string, name: string): Promise<void> {
  await requireInOrg(store, admin, 'admin', orgId)
  await withAudit(store, { admin, action: 'secret.remove', orgId, target: name }, async (rows) => {
    if (!(await rows.networkSecrets.remove(orgId, name))) throw unknown('secret', name)
  })
}

function checkSecretName(name: string): void {
  if (!new RegExp(secretNamePattern).test(name))
    throw invalid('name', 'must be the name of a variable: upper-case letters, digits and "_", the first a letter')
  if (reservedVariables.has(name) || reservedPrefixes.some((prefix) => name.startsWith(prefix)))
    throw invalid('name', 'is reserved by the sandbox')
}

function checkHosts(hosts: readonly string[]): void {
  if (hosts.length === 0 || hosts.length > secretHostsMax)
    throw invalid('hosts', `must contain 1 to ${secretHostsMax} entries`)
  const wrong = hosts.find((host) => parseSecretHost(host) === undefined)
  if (wrong !== undefined)
    throw invalid(
      'hosts',
      `must be names such as api.example.com, *.example.com:8443 or http://name, not ${wrong.slice(0, 128)}`,
    )
}

const invalid = (field: string, problem: string): Refusal => new Refusal('invalid_argument', { field, problem })

const toView = ({ name, placeholder, hosts, places, hint, createdAt, updatedAt }: NetworkSecretRow): SecretView => ({
  ...{ name, placeholder, hint },
  hosts: JSON.parse(hosts) as string[],
  places: JSON.parse(places) as SecretPlace[],
  created_at: createdAt,
  updated_at: updatedAt,
})
