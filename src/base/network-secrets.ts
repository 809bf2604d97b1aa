import { type NetworkRule, parseRule } from './network.ts'

/** Where a request can carry a secret. */
export const secretPlaces = ['header', 'query', 'basic'] as const
export type SecretPlace = (typeof secretPlaces)[number]

/** A secret of a jail. Its value is known outside of the jail only. */
export interface NetworkSecret {
  name: string
  /** What programs have in place of the value. */
  placeholder: string
  value: string
  /** As `parseSecretHost` reads them. */
  hosts: readonly string[]
  places: readonly SecretPlace[]
}

/** Secrets of one profile. */
export const networkSecretsMax = 32
export const secretHostsMax = 32
/** Larger than keys and tokens; smaller than the headers that servers accept. */
export const secretValueMaxBytes = 4096
/** A shorter value would be found in answers by chance. */
export const secretValueMinBytes = 8

export const placeholderPrefix = 'GLOVEBOX_SECRET_'
export const placeholderPattern = '^GLOVEBOX_SECRET_[0-9a-f]{32}$'

/** A variable of a run has the name of its secret. */
export const secretNamePattern = '^[A-Z][A-Z0-9_]{0,127}$'

/** Servers that receive a secret. */
export interface SecretHost {
  target: Extract<NetworkRule['target'], { kind: 'name' | 'suffix' }>
  port: number
  /** Over http, where everybody on the way can read it. */
  isPlain: boolean
}

/**
 * BOUNDARY: parses a server that receives a secret: a name or `*.suffix`, with `:port` or port 443; `http://` before it
 * means requests without TLS, by default to port 80.
 * @returns undefined for anything else.
 */
export function parseSecretHost(text: string): SecretHost | undefined {
  const isPlain = text.startsWith('http://')
  const rule = parseRule(isPlain ? text.slice('http://'.length) : text)
  if (rule === undefined || rule.methods !== undefined || rule.path !== undefined || text.endsWith('/'))
    return undefined
  const { target, port = isPlain ? 80 : 443 } = rule
  return target.kind === 'network' || port === 'any' ? undefined : { target, port, isPlain }
}

/** Whether a value can be part of a header and of a query. */
export const isSecretValue = (value: string): boolean =>
  /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) &&
  value.length >= secretValueMinBytes &&
  value.length <= secretValueMaxBytes
