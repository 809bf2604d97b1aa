import type { IncomingMessage } from 'node:http'

/** Where a request for a preview leads. */
export interface Place {
  /**
   * `path`: below a path of this server, whose origin it must not use. `host`: on an origin of its own.
   */
  form: 'path' | 'host'
  label: string
  /** The port that a host name states. */
  port?: number
  /** The part of a path that admits a browser. */
  grant?: string
  /** What precedes the path of the program; empty for a host name. */
  prefix: string
  /** Path and query for the program. */
  target: string
}

const pathPattern = /^\/preview\/([0-9a-f]{48})(?:~([\w-]{1,128}))?(?=[/?]|$)/
const hostPattern = /^(\d{1,5})-([0-9a-f]{48})\.(.+)$/

/**
 * Recognizes requests for previews.
 * @param domain below which previews have host names; empty for none.
 */
export function placeOf(
  { headers, url = '' }: Pick<IncomingMessage, 'headers' | 'url'>,
  domain: string,
): Place | undefined {
  return (domain === '' ? undefined : byHost(headers.host ?? '', url, domain)) ?? byPath(url)
}

function byHost(host: string, url: string, domain: string): Place | undefined {
  const [, port, label, rest = ''] = hostPattern.exec(withoutPort(host.toLowerCase())) ?? []
  if (label === undefined || rest !== withoutPort(domain.toLowerCase())) return undefined
  return { form: 'host', label, port: Number(port), prefix: '', target: url }
}

function byPath(url: string): Place | undefined {
  const [prefix = '', label, grant] = pathPattern.exec(url) ?? []
  if (label === undefined) return undefined
  return { form: 'path', label, ...(grant !== undefined && { grant }), prefix, target: url.slice(prefix.length) }
}

const withoutPort = (host: string): string => host.replace(/\.?(?::\d+)?$/, '')
