/** How each front reports one kind of refusal. */
export interface RefusalStatus {
  /** HTTP status of REST routes, and of MCP responses where a protocol error has one. */
  http: number
  /** Error code in JSON-RPC responses: https://www.jsonrpc.org/specification#error_object */
  rpc: number
  /** Value of the `error` field in REST response bodies. */
  error: string
  /** Whether the same request can succeed later. */
  retry: 'never' | 'later'
}

/** The kinds of refusals, with one column per front. No other file contains a status or an error code. */
export const refusalKinds = {
  malformed_json: { http: 400, rpc: -32700, error: 'invalid_request', retry: 'never' },
  invalid_request: { http: 400, rpc: -32600, error: 'invalid_request', retry: 'never' },
  invalid_params: { http: 400, rpc: -32602, error: 'invalid_request', retry: 'never' },
  invalid_argument: { http: 400, rpc: -32602, error: 'validation_error', retry: 'never' },
  incomplete_upload: { http: 400, rpc: -32600, error: 'invalid_request', retry: 'later' },
  mcp_header_mismatch: { http: 400, rpc: -32020, error: 'invalid_request', retry: 'never' },
  mcp_capability_missing: { http: 400, rpc: -32021, error: 'invalid_request', retry: 'never' },
  mcp_version_unsupported: { http: 400, rpc: -32022, error: 'invalid_request', retry: 'never' },
  unauthenticated: { http: 401, rpc: -32600, error: 'unauthorized', retry: 'never' },
  forbidden: { http: 403, rpc: -32600, error: 'forbidden', retry: 'never' },
  read_only: { http: 403, rpc: -32000, error: 'forbidden', retry: 'never' },
  not_found: { http: 404, rpc: -32602, error: 'not_found', retry: 'never' },
  method_not_found: { http: 404, rpc: -32601, error: 'not_found', retry: 'never' },
  session_not_found: { http: 404, rpc: -32600, error: 'not_found', retry: 'never' },
  method_not_allowed: { http: 405, rpc: -32600, error: 'method_not_allowed', retry: 'never' },
  not_acceptable: { http: 406, rpc: -32600, error: 'not_acceptable', retry: 'never' },
  request_timeout: { http: 408, rpc: -32600, error: 'request_timeout', retry: 'later' },
  conflict: { http: 409, rpc: -32000, error: 'conflict', retry: 'never' },
  busy: { http: 409, rpc: -32000, error: 'conflict', retry: 'later' },
  state_conflict: { http: 409, rpc: -32600, error: 'conflict', retry: 'never' },
  in_use: { http: 409, rpc: -32600, error: 'conflict', retry: 'later' },
  arguments_conflict: { http: 409, rpc: -32602, error: 'conflict', retry: 'never' },
  storage_full: { http: 409, rpc: -32000, error: 'storage_full', retry: 'never' },
  length_required: { http: 411, rpc: -32600, error: 'length_required', retry: 'never' },
  body_too_large: { http: 413, rpc: -32600, error: 'payload_too_large', retry: 'never' },
  resource_too_large: { http: 413, rpc: -32602, error: 'payload_too_large', retry: 'never' },
  unsupported_media_type: { http: 415, rpc: -32600, error: 'unsupported_media_type', retry: 'never' },
  range_not_satisfiable: { http: 416, rpc: -32602, error: 'range_not_satisfiable', retry: 'never' },
  range_invalid: { http: 416, rpc: -32602, error: 'validation_error', retry: 'never' },
  rate_limited: { http: 429, rpc: -32000, error: 'rate_limited', retry: 'later' },
  internal_error: { http: 500, rpc: -32603, error: 'internal_error', retry: 'later' },
  upstream_error: { http: 502, rpc: -32000, error: 'upstream_error', retry: 'later' },
  configuration_error: { http: 502, rpc: -32000, error: 'configuration_error', retry: 'later' },
  upstream_timeout: { http: 504, rpc: -32000, error: 'upstream_timeout', retry: 'later' },
  unavailable: { http: 503, rpc: -32000, error: 'unavailable', retry: 'later' },
} as const satisfies Record<string, RefusalStatus>

export type RefusalKind = keyof typeof refusalKinds
