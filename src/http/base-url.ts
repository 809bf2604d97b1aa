import type { FastifyRequest } from 'fastify'

/**
 * Returns the base URL of links, without a trailing slash.
 * @param publicUrl as configured; empty: http and the Host header of the request.
 */
export const baseUrlOf = ({ headers }: FastifyRequest, publicUrl: string): string =>
  publicUrl === '' ? `http://${headers.host ?? 'localhost'}` : publicUrl.replace(/\/+$/, '')
