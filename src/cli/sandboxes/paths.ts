import type { ServerOptions } from '../api-client.ts'

export interface SandboxOptions extends ServerOptions {
  json?: boolean
  namespace?: string
}

export const pathOf = (name: string): string => `/v1/sandboxes/${encodeURIComponent(name)}`

/** The query that names the namespace; empty, or with its question mark. */
export const suffixOf = ({ namespace }: SandboxOptions): string =>
  namespace === undefined ? '?' : `?namespace=${encodeURIComponent(namespace)}`
