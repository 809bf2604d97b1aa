import { parseRule } from '../../base/network.ts'
import type { UpstreamRow } from '../../store/upstream-rows.ts'
import { invalid } from '../upstreams/checks.ts'
import { checkCredentialOf, checkedProgram, programOf } from '../upstreams/programs/program.ts'
import type { UpstreamSecrets } from '../upstreams/secrets.ts'
import { type Admin, requireInstance } from './admin.ts'
import type { UpstreamSettings } from './upstreams.ts'

type Place = Pick<UpstreamRow, 'transport' | 'url' | 'program'>

/**
 * Returns where an upstream is: at an address, or a program in a sandbox.
 * @param row as it was; its address is empty if it is new.
 * @throws Refusal `invalid_argument`.
 */
export function toPlace(row: UpstreamRow, { transport: asked, url, program }: UpstreamSettings): Place {
  if (asked === undefined && url === undefined && program === undefined && isPlaced(row)) return placeOf(row)
  const transport = asked ?? (program === undefined ? row.transport : 'stdio')
  if (transport === 'stdio') {
    if (url !== undefined && url !== '') throw invalid('url', 'must not be set for a program')
    return { transport, url: '', program: JSON.stringify(checkedProgram(program ?? {}, programOf(row))) }
  }
  if (program !== undefined) throw invalid('program', 'needs the transport stdio')
  const address = url ?? row.url
  if (address === '') throw invalid('url', 'is missing')
  return { transport, url: address, program: null }
}

const placeOf = ({ transport, url, program }: UpstreamRow): Place => ({ transport, url, program })

const isPlaced = ({ url, program }: UpstreamRow): boolean => url !== '' || program !== null

/**
 * Checks that an administrator may set the network of a program. Addresses can be private ones, which only those decide on
 * who administer the whole instance; names lead to public addresses.
 * @throws Refusal forbidden.
 */
export function checkNetworkRights(admin: Admin, { program }: UpstreamSettings): void {
  const rules = program?.network?.rules ?? []
  if (rules.some((rule) => parseRule(rule)?.target.kind === 'network')) requireInstance(admin, 'admin')
}

/** Checks that the secrets of an upstream fit to where it is. @throws Refusal `invalid_argument`. */
export function checkSecrets(place: Place, { headers, credential, oauth, env = {} }: UpstreamSecrets): void {
  const program = programOf(place)
  if (program === null) {
    if (Object.keys(env).length > 0) throw invalid('env', 'is only used by programs')
    if (credential?.in === 'env') throw invalid('credential.in', 'must not be env, which only programs have')
    return
  }
  if (Object.keys(headers).length > 0) throw invalid('headers', 'are not used by programs; use env')
  if (oauth) throw invalid('oauth', 'is not used by programs; use credential')
  checkCredentialOf(program, credential)
}
