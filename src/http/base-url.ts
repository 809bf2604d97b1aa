import type { FastifyRequest } from 'fastify'

/**
 * Where the client reaches this server, without a slash at its end.
 * @param publicUrl as configured; empty: as the client said, by http.
 */
export const baseUrlOf = ({ headers }: FastifyRequest, publicUrl: string): string =>
  publicUrl === '' ? `http://${headers.host ?? 'localhost'}` : publicUrl.replace(/\/+$/, '')
