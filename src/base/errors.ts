/**
 * Every refusal the product can give: one row each. Nobody else knows a status code.
 * `docs/errors.md` is printed from this table.
 *
 * An ending is data (`base/run.ts`); a refusal is the caller's to act on; anything else is a fault.
 */

export interface RefusalRow {
  /** HTTP status on REST routes and where a protocol error carries one. */
  http: number
  /** JSON-RPC error code on MCP and other JSON-RPC front doors. */
  rpc: number
  /** Word in the `error` field of REST bodies. */
  error: string
  retry: 'never' | 'later'
  /** `{name}` is replaced by the detail of that name. */
  message: string
  hint: string
}

const rows = {
  // The message itself
  parse_error: {
    http: 400,
    rpc: -32700,
    error: 'invalid_request',
    retry: 'never',
    message: 'The body is not valid JSON: {problem}.',
    hint: 'Send one JSON object, UTF-8 encoded.',
  },
  invalid_request: {
    http: 400,
    rpc: -32600,
    error: 'invalid_request',
    retry: 'never',
    message: 'Not a valid request: {problem}.',
    hint: 'See the documentation of this endpoint.',
  },
  method_not_found: {
    http: 404,
    rpc: -32601,
    error: 'not_found',
    retry: 'never',
    message: 'Method not found: {method}',
    hint: 'Call tools/list to see what this server offers.',
  },
  unsupported_version: {
    http: 400,
    rpc: -32602,
    error: 'invalid_request',
    retry: 'never',
    message: 'Protocol version {version} is not supported; this server speaks {supported}.',
    hint: 'Send a supported MCP-Protocol-Version, or none.',
  },
  era_unsupported: {
    http: 400,
    rpc: -32022,
    error: 'invalid_request',
    retry: 'never',
    message: 'Protocol version {requested} is not supported; this server speaks {supported}.',
    hint: 'Fall back to initialize with a supported version.',
  },
  body_too_large: {
    http: 413,
    rpc: -32600,
    error: 'payload_too_large',
    retry: 'never',
    message: 'The body is larger than {limitBytes} bytes.',
    hint: 'Send less in one request.',
  },
  not_acceptable: {
    http: 406,
    rpc: -32600,
    error: 'not_acceptable',
    retry: 'never',
    message: 'This answers with {wanted} only.',
    hint: 'Send the header Accept: {wanted}.',
  },
  wrong_content_type: {
    http: 415,
    rpc: -32600,
    error: 'unsupported_media_type',
    retry: 'never',
    message: 'The content type must be application/json.',
    hint: 'Send the header Content-Type: application/json.',
  },
  not_found: {
    http: 404,
    rpc: -32602,
    error: 'not_found',
    retry: 'never',
    message: '{what} does not exist.',
    hint: 'Check the address or the id.',
  },
  name_taken: {
    http: 409,
    rpc: -32600,
    error: 'conflict',
    retry: 'never',
    message: '{what} named {name} exists already.',
    hint: 'Choose another name, or use the one that is there.',
  },
  in_use: {
    http: 409,
    rpc: -32600,
    error: 'conflict',
    retry: 'later',
    message: '{what} is in use by {by}.',
    hint: 'Let go of it there first.',
  },
  key_revoked: {
    http: 409,
    rpc: -32600,
    error: 'conflict',
    retry: 'never',
    message: 'The key {key} is revoked.',
    hint: 'What is revoked stays so; make another key.',
  },
  method_not_allowed: {
    http: 405,
    rpc: -32600,
    error: 'method_not_allowed',
    retry: 'never',
    message: '{method} is not allowed here; use {allowed}.',
    hint: 'Use the method named.',
  },

  // Who is asking
  unauthorized: {
    http: 401,
    rpc: -32600,
    error: 'unauthorized',
    retry: 'never',
    message: 'Invalid or revoked API key.',
    hint: 'Send the header Authorization: Bearer KEY.',
  },
  too_many_failures: {
    http: 429,
    rpc: -32000,
    error: 'rate_limited',
    retry: 'later',
    message: 'Too many failed attempts to authenticate from this address.',
    hint: 'Use a valid key, which always passes, or wait {retryAfterSeconds} s.',
  },
  limit_reached: {
    http: 429,
    rpc: -32000,
    error: 'rate_limited',
    retry: 'later',
    message: 'This {owner} has reached its limit {limit}, which is {amount}.',
    hint: 'Come again in {retryAfterSeconds} s, or ask an administrator for more.',
  },
  webhooks_full: {
    http: 429,
    rpc: -32000,
    error: 'rate_limited',
    retry: 'later',
    message: 'This org has {amount} endings that are still to be told to its addresses.',
    hint: 'See that its receivers answer, and try again in {retryAfterSeconds} s.',
  },
  forbidden: {
    http: 403,
    rpc: -32600,
    error: 'forbidden',
    retry: 'never',
    message: 'This takes {need}.',
    hint: 'Use a token that may, or ask whoever has one.',
  },
  permission_denied: {
    http: 403,
    rpc: -32600,
    error: 'forbidden',
    retry: 'never',
    message: "This key does not have the capability '{capability}' ({source}).",
    hint: 'Use another key, or ask an administrator to allow it for this key, its profile or its organization.',
  },
  profile_gone: {
    http: 403,
    rpc: -32600,
    error: 'forbidden',
    retry: 'never',
    message: "This key is bound to the profile '{profile}', which the configuration no longer has.",
    hint: 'Ask the operator to bring the profile back, or for a key that is bound to another.',
  },
  host_not_allowed: {
    http: 403,
    rpc: -32600,
    error: 'forbidden',
    retry: 'never',
    message: 'Host {host} is not served here.',
    hint: 'Use the address that the server printed at start, or add the name to allowed_hosts.',
  },
  origin_not_allowed: {
    http: 403,
    rpc: -32600,
    error: 'forbidden',
    retry: 'never',
    message: 'Requests from web pages ({origin}) are refused.',
    hint: 'Call the server from a program, or add the origin to allowed_origins.',
  },

  // The 2026-07-28 envelope: https://modelcontextprotocol.io/specification/2026-07-28/basic
  meta_invalid: {
    http: 400,
    rpc: -32602,
    error: 'invalid_request',
    retry: 'never',
    message: '_meta["io.modelcontextprotocol/{key}"] {problem}.',
    hint: 'Send it in params._meta with every request.',
  },
  header_mismatch: {
    http: 400,
    rpc: -32020,
    error: 'invalid_request',
    retry: 'never',
    message: 'The header {header} {problem}.',
    hint: 'Headers repeat what the body says: MCP-Protocol-Version, Mcp-Method, Mcp-Name and Mcp-Param-*.',
  },
  capability_missing: {
    http: 400,
    rpc: -32021,
    error: 'invalid_request',
    retry: 'never',
    message: 'This needs a client capability that was not declared: {capability}.',
    hint: 'Use a client that has it and declares it with the request.',
  },
  input_invalid: {
    http: 400,
    rpc: -32602,
    error: 'invalid_request',
    retry: 'never',
    message: 'inputResponses.{name} {problem}.',
    hint: 'Answer each of inputRequests under its own name, in the form that its method asks for.',
  },
  state_invalid: {
    http: 400,
    rpc: -32602,
    error: 'invalid_request',
    retry: 'never',
    message: 'requestState was not given out for this request, or is too old.',
    hint: 'Begin again without requestState.',
  },
  session_unknown: {
    http: 404,
    rpc: -32600,
    error: 'not_found',
    retry: 'never',
    message: 'There is no such session.',
    hint: 'Send initialize again, without Mcp-Session-Id.',
  },
  sessions_full: {
    http: 429,
    rpc: -32000,
    error: 'rate_limited',
    retry: 'later',
    message: 'This key has {limit} sessions open, which is as many as there may be.',
    hint: 'End one with DELETE, or work without sessions.',
  },

  // The arguments of a tool or a REST body
  unknown_prompt: {
    http: 404,
    rpc: -32602,
    error: 'not_found',
    retry: 'never',
    message: 'Unknown prompt: {prompt}',
    hint: 'Call prompts/list to see what there is.',
  },
  resource_too_large: {
    http: 413,
    rpc: -32602,
    error: 'payload_too_large',
    retry: 'never',
    message: '{uri} is {bytes} bytes; at most {limitBytes} are read as a resource.',
    hint: 'Get a link to it with the tool files_download or with POST /v1/files/download.',
  },
  resource_unknown: {
    http: 404,
    rpc: -32602,
    error: 'not_found',
    retry: 'never',
    message: 'There is no resource {uri}.',
    hint: 'Call resources/list and resources/templates/list to see what there is.',
  },
  unknown_tool: {
    http: 404,
    rpc: -32602,
    error: 'not_found',
    retry: 'never',
    message: 'Unknown tool: {tool}',
    hint: 'Call tools/list to see the tools of this key.',
  },
  invalid_argument: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: '{field} {problem}.',
    hint: 'Mend the field named and call again.',
  },
  destination_refused: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: 'This address cannot be reached from here: {reason}.',
    hint: 'Use an https address on the public internet, or ask the operator to add its host to outbound_allow.',
  },
  code_empty: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: 'code must be between 1 byte and {limitBytes} bytes; it is empty.',
    hint: 'Send the source text to run.',
  },
  code_too_large: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: 'code is {bytes} bytes; at most {limitBytes} are accepted.',
    hint: 'Let the code fetch or generate its data instead of carrying it.',
  },
  language_unavailable: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: "Language '{language}' is not available in this profile; it offers {offered}.",
    hint: 'Use one of the languages named.',
  },
  timeout_too_long: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: 'timeout is {seconds} s; this profile allows at most {limitSeconds} s.',
    hint: 'Ask for a shorter timeout or split the work.',
  },
  threads_unavailable: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: 'thread_id is not supported here: the profile of this key has no storage.',
    hint: 'Leave thread_id out; each call starts fresh.',
  },
  volumes_unavailable: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: 'Volumes are not available on this server.',
    hint: 'Use source thread, with the thread_id of the call that wrote the file.',
  },

  // Threads, volumes and the files in them
  thread_unknown: {
    http: 404,
    rpc: -32602,
    error: 'not_found',
    retry: 'never',
    message: 'There is no thread {thread}.',
    hint: 'A thread is made by its first run; check the name.',
  },
  thread_busy: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'later',
    message: 'Conflict: thread {thread} is busy.',
    hint: 'Wait for it to finish, or use another thread_id.',
  },
  thread_exists: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'never',
    message: 'Conflict: there is a thread {thread} already.',
    hint: 'Name one that does not exist yet, or delete that one first.',
  },
  volume_unknown: {
    http: 404,
    rpc: -32602,
    error: 'not_found',
    retry: 'never',
    message: 'There is no volume {volume}.',
    hint: 'GET /v1/volumes lists the volumes of this key; the operator makes them.',
  },
  volume_busy: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'later',
    message: 'Conflict: volume {volume} is in use.',
    hint: 'Wait until the runs that have it mounted have ended, and ask again.',
  },
  volume_read_only: {
    http: 403,
    rpc: -32000,
    error: 'forbidden',
    retry: 'never',
    message: 'The volume {volume} is read-only for this key.',
    hint: 'Write to another volume, or ask an administrator for a profile that mounts it as rw.',
  },
  volume_missing: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'never',
    message: 'The profile of this key mounts the volume {volume}, which does not exist.',
    hint: 'Ask the operator to make it (glovebox volumes create), or to take it out of the profile.',
  },
  storage_unavailable: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: 'This server keeps no storage: no profile of it has threads or volumes.',
    hint: 'Give a profile storage or volumes, and start the server again.',
  },
  path_invalid: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: 'The path is not valid: it {problem}.',
    hint: 'Give a path relative to the home directory, for example results/table.csv; links are not followed.',
  },
  path_too_deep: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: 'The path has {depth} parts; at most {limitDepth} are accepted here.',
    hint: 'Use fewer directories inside each other.',
  },
  link_invalid: {
    http: 401,
    rpc: -32600,
    error: 'unauthorized',
    retry: 'never',
    message: 'This link is not valid, or not any more.',
    hint: 'Ask for another with POST /v1/files/download or /v1/files/upload; a link ends with its time and with its key.',
  },
  link_used: {
    http: 409,
    rpc: -32600,
    error: 'conflict',
    retry: 'never',
    message: 'This link was used already, and was good once.',
    hint: 'Ask for another.',
  },
  length_required: {
    http: 411,
    rpc: -32600,
    error: 'length_required',
    retry: 'never',
    message: 'An upload says its length beforehand: Content-Length: {sizeBytes}.',
    hint: 'With curl use -T FILE; do not send it chunked.',
  },
  upload_too_large: {
    http: 413,
    rpc: -32600,
    error: 'payload_too_large',
    retry: 'never',
    message: 'The file is {givenBytes} bytes; this link is for {sizeBytes}.',
    hint: 'Ask for a link with the exact size.',
  },
  upload_broken: {
    http: 400,
    rpc: -32600,
    error: 'invalid_request',
    retry: 'later',
    message: 'The upload ended after {receivedBytes} of {sizeBytes} bytes; nothing was written.',
    hint: 'Send it again, whole.',
  },
  range_unsatisfiable: {
    http: 416,
    rpc: -32602,
    error: 'range_not_satisfiable',
    retry: 'never',
    message: 'The range begins after the end of the file, which is {sizeBytes} bytes.',
    hint: 'Ask for a range within it.',
  },
  path_not_found: {
    http: 404,
    rpc: -32602,
    error: 'not_found',
    retry: 'never',
    message: 'There is no {path}.',
    hint: 'List the directory to see what is there.',
  },
  path_exists: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'never',
    message: '{path} exists already.',
    hint: 'Use another name, or remove it first.',
  },
  not_a_file: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: '{path} is not a regular file but a {kind}.',
    hint: 'Only regular files can be read and written; links are not followed.',
  },
  not_a_directory: {
    http: 400,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: '{path} is not a directory.',
    hint: 'Links to directories are not followed; use the path of the directory itself.',
  },
  directory_not_empty: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'never',
    message: 'The directory {path} is not empty.',
    hint: 'Remove what is in it first, or remove it with all that it holds.',
  },
  range_invalid: {
    http: 416,
    rpc: -32602,
    error: 'validation_error',
    retry: 'never',
    message: 'The range begins at byte {offset}; the file has {sizeBytes} bytes.',
    hint: 'Ask for a range within the file.',
  },
  file_busy: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'later',
    message: '{path} is held by a program.',
    hint: 'Try again when the program has let it go.',
  },
  storage_full: {
    http: 409,
    rpc: -32000,
    error: 'storage_full',
    retry: 'never',
    message: 'The storage is full: no room or no free file is left.',
    hint: 'Delete files that are not needed, or ask for a larger quota.',
  },
  reserved_names_taken: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'never',
    message:
      'Every name that is reserved for unfinished writes, .glovebox-0 to .glovebox-15, is taken in the home directory.',
    hint: 'Remove what has these names: they are not for files that should last.',
  },

  // Capacity and state
  queue_full: {
    http: 503,
    rpc: -32000,
    error: 'unavailable',
    retry: 'later',
    message: 'No place is free ({running} running), and the queue is full ({waiting} waiting).',
    hint: 'Try again in {retryAfterSeconds} s.',
  },
  unavailable: {
    http: 503,
    rpc: -32000,
    error: 'unavailable',
    retry: 'later',
    message: 'Runs cannot be started right now: {reason}.',
    hint: 'Try again shortly.',
  },
  files_busy: {
    http: 503,
    rpc: -32000,
    error: 'unavailable',
    retry: 'later',
    message: 'Too many files are being read and written at once.',
    hint: 'Try again shortly.',
  },
  subject_conflict: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'never',
    message: 'Conflict: thread {thread} belongs to another subject.',
    hint: 'Use another thread_id, or leave subject away: what runs on a thread belongs to the subject of the thread.',
  },
  subject_active: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'later',
    message: 'Conflict: {what} of this subject is in use.',
    hint: 'Wait until its runs have ended, or cancel them, and ask again.',
  },
  run_unknown: {
    http: 404,
    rpc: -32602,
    error: 'not_found',
    retry: 'never',
    message: 'There is no run {runId}.',
    hint: 'Runs are known by the trace_id of their answer.',
  },
  idempotency_conflict: {
    http: 409,
    rpc: -32602,
    error: 'conflict',
    retry: 'never',
    message: 'idempotency_key {idempotencyKey} was used before with other arguments.',
    hint: 'Use a new key for each different call; repeat a call with the same key only as it was.',
  },
  task_unknown: {
    http: 404,
    rpc: -32602,
    error: 'not_found',
    retry: 'never',
    message: 'There is no task {task}.',
    hint: 'A task can be asked for by the key that made it, for a day.',
  },
  run_finished: {
    http: 409,
    rpc: -32000,
    error: 'conflict',
    retry: 'never',
    message: 'Run {runId} has already ended.',
    hint: 'Nothing is left to cancel.',
  },
  fault: {
    http: 500,
    rpc: -32603,
    error: 'internal_error',
    retry: 'later',
    message: 'Something failed on our side (id {faultId}).',
    hint: 'Try again; if it persists, give the operator this id.',
  },
} as const satisfies Record<string, RefusalRow>

export type RefusalCode = keyof typeof rows
export const refusals: Readonly<Record<RefusalCode, RefusalRow>> = rows

export type Details = Readonly<Record<string, string | number | readonly string[]>>

function filled(template: string, details: Details): string {
  return template.replaceAll(/\{(\w+)\}/g, (whole, name: string) => {
    const value = details[name]
    return value === undefined ? whole : Array.isArray(value) ? value.join(', ') : String(value)
  })
}

/** The caller asked for something that is not given; `code` is one row of the table. */
export class Refusal extends Error {
  readonly code: RefusalCode
  readonly details: Details
  readonly hint: string

  constructor(code: RefusalCode, details: Details = {}) {
    super(filled(refusals[code].message, details))
    this.name = 'Refusal'
    this.code = code
    this.details = details
    this.hint = filled(refusals[code].hint, details)
  }

  get row(): RefusalRow {
    return refusals[this.code]
  }
}

/** The product cannot start as asked. Printed with its remedy; never weakened to a warning. */
export class StartRefused extends Error {
  readonly remedy: string

  constructor(reason: string, remedy: string) {
    super(reason)
    this.name = 'StartRefused'
    this.remedy = remedy
  }
}
