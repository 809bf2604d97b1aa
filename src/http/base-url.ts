import type { FastifyRequest } from 'fastify'
import type { ReadForwarded } from './forwarded.ts'

/** What base URLs are made from. */
export interface Addressing {
  /** As configured; empty: what the request and trusted proxies say. */
  publicUrl: string
  forwarded: ReadForwarded
}

/** Returns the base URL of links, without a trailing slash. */
export function baseUrlOf({ raw }: FastifyRequest, { publicUrl, forwarded }: Addressing): string {
  if (publicUrl !== '') return publicUrl.replace(/\/+$/, '')
  const { protocol, host, prefix } = forwarded(raw)
  return `${protocol}://${host}${prefix}`
}
