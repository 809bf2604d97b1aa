import { Refusal } from '../base/errors.ts'

/**
 * Error codes of the HTTP errors of microsandbox:
 * https://github.com/zerocore-ai/microsandbox/blob/main/microsandbox-server/lib/error.rs
 */
const codes = {
  invalidToken: 1004,
  tokenRequired: 1006,
  invalidInput: 2001,
  accessDenied: 3001,
  insufficientPermissions: 3002,
  notFound: 4001,
  internal: 5002,
} as const

/** The body of an HTTP error, as the clients of microsandbox print it. */
export function errorBodyOf(refusal: Refusal): string {
  const message = refusal.code === 'fault' ? `Internal server error (${refusal.message})` : refusal.message
  return JSON.stringify({ error: message, code: codeOf(refusal) })
}

/** The same for an error that has no JSON-RPC message to answer. */
export const errorObjectOf = ({ status, message }: RpcError) => ({
  error: message,
  code: status === 404 ? codes.notFound : codes.invalidInput,
})

function codeOf({ code, row }: Refusal): number {
  if (code === 'key_missing') return codes.tokenRequired
  if (code === 'namespace_denied') return codes.accessDenied
  switch (row.http) {
    case 400:
      return codes.invalidInput
    case 401:
      return codes.invalidToken
    case 403:
      return codes.insufficientPermissions
    case 404:
      return codes.notFound
    default:
      return codes.internal
  }
}

/** An error that is answered as a JSON-RPC error instead of an HTTP error, as microsandbox does it. */
export class RpcError extends Error {
  readonly status: 200 | 400 | 404
  readonly code: number

  constructor(status: RpcError['status'], code: number, message: string) {
    super(message)
    this.name = 'RpcError'
    this.status = status
    this.code = code
  }
}

export const rpcCodes = { invalidRequest: -32600, methodNotFound: -32601, internal: -32603 } as const

export const invalidParams = (field: string, problem: string): Refusal =>
  new Refusal('invalid_argument', { field, problem })
