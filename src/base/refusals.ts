import type { RefusalKind } from './refusal-kinds.ts'

/** The part of a refusal that is its own; its kind determines the status and the codes. */
interface RefusalText {
  kind: RefusalKind
  /** States what is wrong. `{name}` is replaced by the detail of that name. */
  message: string
  /** States what to do next; details are filled in as well. */
  hint: string
}

/** Every refusal that the product can return, by its code. `docs/errors.md` is generated from this table. */
export const refusalTexts = {
  // The message itself
  parse_error: {
    kind: 'malformed_json',
    message: 'The body is not valid JSON: {problem}.',
    hint: 'Send one JSON object, encoded as UTF-8.',
  },
  invalid_request: {
    kind: 'invalid_request',
    message: 'Invalid request: {problem}.',
    hint: 'Compare the request with the documentation of this endpoint.',
  },
  method_not_found: {
    kind: 'method_not_found',
    message: 'Method not found: {method}',
    hint: 'Use an MCP method that this server supports, such as tools/list.',
  },
  unsupported_version: {
    kind: 'invalid_params',
    message: 'Protocol version {version} is not supported. Supported versions: {supported}.',
    hint: 'Send a supported version in MCP-Protocol-Version, or omit the header.',
  },
  era_unsupported: {
    kind: 'mcp_version_unsupported',
    message: 'Protocol version {requested} is not supported. Supported versions: {supported}.',
    hint: 'Fall back to initialize with a supported version.',
  },
  body_too_large: {
    kind: 'body_too_large',
    message: 'The request body is larger than {limitBytes} bytes.',
    hint: 'Send a smaller body. Transfer large data as files.',
  },
  not_acceptable: {
    kind: 'not_acceptable',
    message: 'This endpoint responds only with {wanted}.',
    hint: 'Send the header Accept: {wanted}.',
  },
  wrong_content_type: {
    kind: 'unsupported_media_type',
    message: 'The content type must be application/json.',
    hint: 'Send the header Content-Type: application/json.',
  },
  name_unknown: {
    kind: 'not_found',
    message: '{what} does not exist.',
    hint: 'Call {tool} for the names.',
  },
  not_found: {
    kind: 'not_found',
    message: '{what} does not exist.',
    hint: 'Check the URL or the ID.',
  },
  name_taken: {
    kind: 'state_conflict',
    message: '{what} named {name} already exists.',
    hint: 'Choose another name or use the existing one.',
  },
  declaration_invalid: {
    kind: 'invalid_params',
    message: 'The declaration has {count} mistakes, so nothing was changed.',
    hint: 'Correct what `problems` lists, then retry.',
  },
  in_use: {
    kind: 'in_use',
    message: '{what} is in use by {by}.',
    hint: 'Remove it from there first, then retry.',
  },
  key_revoked: {
    kind: 'state_conflict',
    message: 'The key {key} is revoked.',
    hint: 'A revoked key cannot be restored. Create a new one.',
  },
  method_not_allowed: {
    kind: 'method_not_allowed',
    message: '{method} is not allowed for this URL. Allowed methods: {allowed}.',
    hint: 'Use one of the allowed methods.',
  },

  // Authentication and permissions
  unauthorized: {
    kind: 'unauthenticated',
    message: 'Invalid or revoked API key.',
    hint: 'Send the header Authorization: Bearer KEY.',
  },
  key_missing: {
    kind: 'unauthenticated',
    message: 'No API key was sent. Send the header Authorization: Bearer KEY, or x-api-key: KEY.',
    hint: 'Add the header to the configuration of the client. An operator creates a key with glovebox keys create.',
  },
  token_missing: {
    kind: 'unauthenticated',
    message: 'No admin token was sent. Send the header Authorization: Bearer TOKEN.',
    hint: 'An owner creates a token with glovebox tokens create. API keys are not accepted here.',
  },
  token_invalid: {
    kind: 'unauthenticated',
    message: 'Invalid or revoked admin token.',
    hint: 'Send an admin token, which begins with gba_. API keys are not accepted here. glovebox tokens list shows the valid ones.',
  },
  login_expired: {
    kind: 'unauthenticated',
    message: 'The login of this browser has ended.',
    hint: 'Log in again with an admin token.',
  },
  csrf_token_missing: {
    kind: 'forbidden',
    message: 'This request changes something and does not have the CSRF token of the login.',
    hint: 'Send the csrf_token of GET /console/login as the header X-CSRF-Token, or an admin token instead of a cookie.',
  },
  oauth_unsupported: {
    kind: 'not_found',
    message: 'This server does not use OAuth but API keys.',
    hint: 'Configure the client with the header Authorization: Bearer KEY.',
  },
  too_many_failures: {
    kind: 'rate_limited',
    message: 'Too many failed authentication attempts from this address.',
    hint: 'Send a valid key, which is always accepted, or retry in {retryAfterSeconds} s.',
  },
  limit_reached: {
    kind: 'rate_limited',
    message: 'This {owner} has reached its limit {limit} ({amount}).',
    hint: 'Retry in {retryAfterSeconds} s, or ask an administrator to raise the limit.',
  },
  webhooks_full: {
    kind: 'rate_limited',
    message: 'This organization has reached the maximum of {amount} pending webhook deliveries.',
    hint: 'Check that the webhook receivers respond, then retry in {retryAfterSeconds} s.',
  },
  forbidden: {
    kind: 'forbidden',
    message: 'This requires {need}.',
    hint: 'Use a token with the required permission, or ask an administrator for one.',
  },
  permission_denied: {
    kind: 'forbidden',
    message: "This key does not have the capability '{capability}' ({source}).",
    hint: 'Use another key, or ask an administrator to allow it for this key, its profile or its organization.',
  },
  profile_gone: {
    kind: 'forbidden',
    message: "This key is bound to the profile '{profile}', which no longer exists in the configuration.",
    hint: 'Ask the operator to restore the profile or to issue a key for another one.',
  },
  address_not_allowed: {
    kind: 'forbidden',
    message: 'Runtime tools cannot be used from the address {address}.',
    hint: 'Call from an allowed address, or add this one to runtime_allowed.',
  },
  host_not_allowed: {
    kind: 'forbidden',
    message: 'The host {host} is not allowed.',
    hint: 'Use the address that the server printed at startup, or add the host to allowed_hosts.',
  },
  origin_not_allowed: {
    kind: 'forbidden',
    message: 'Requests from web pages ({origin}) are not allowed.',
    hint: 'Call the server from a program, or add the origin to allowed_origins.',
  },

  // The 2026-07-28 envelope: https://modelcontextprotocol.io/specification/2026-07-28/basic
  meta_invalid: {
    kind: 'invalid_params',
    message: '_meta["io.modelcontextprotocol/{key}"] {problem}.',
    hint: 'Send this field in params._meta with every request.',
  },
  header_mismatch: {
    kind: 'mcp_header_mismatch',
    message: 'The header {header} {problem}.',
    hint: 'Set MCP-Protocol-Version, Mcp-Method, Mcp-Name and Mcp-Param-* to the values in the body.',
  },
  capability_missing: {
    kind: 'mcp_capability_missing',
    message: 'This requires a client capability that was not declared: {capability}.',
    hint: 'Use a client that supports this capability and declares it in the request.',
  },
  input_invalid: {
    kind: 'invalid_params',
    message: 'inputResponses.{name} {problem}.',
    hint: 'Answer each entry of inputRequests under its own name, in the format that its method requires.',
  },
  state_invalid: {
    kind: 'invalid_params',
    message: 'requestState does not belong to this request or has expired.',
    hint: 'Send the request again without requestState.',
  },
  session_unknown: {
    kind: 'session_not_found',
    message: 'The session does not exist or has expired.',
    hint: 'Send initialize again without Mcp-Session-Id.',
  },
  sessions_full: {
    kind: 'rate_limited',
    message: 'This key has reached the maximum of {limit} open sessions.',
    hint: 'Close a session with DELETE, or work without sessions.',
  },

  // The arguments of a tool or a REST body
  unknown_prompt: {
    kind: 'not_found',
    message: 'Unknown prompt: {prompt}',
    hint: 'Call prompts/list to list the available prompts.',
  },
  resource_too_large: {
    kind: 'resource_too_large',
    message: '{uri} is {bytes} bytes; the maximum for a resource is {limitBytes} bytes.',
    hint: 'Get a download link with the tool files_download or with POST /v1/files/download.',
  },
  resource_unknown: {
    kind: 'not_found',
    message: 'The resource {uri} does not exist.',
    hint: 'Call resources/list and resources/templates/list to list the available resources.',
  },
  unknown_tool: {
    kind: 'not_found',
    message: 'Unknown tool: {tool}',
    hint: 'Call tools/list to list the tools that this key can use.',
  },
  invalid_argument: {
    kind: 'invalid_argument',
    message: '{field} {problem}.',
    hint: 'Fix this field and retry.',
  },
  destination_refused: {
    kind: 'invalid_argument',
    message: 'The server cannot connect to this address: {reason}.',
    hint: 'Use an https address on the public internet, or ask the operator to add its host to outbound_allow.',
  },
  code_empty: {
    kind: 'invalid_argument',
    message: 'code must be between 1 and {limitBytes} bytes; it is empty.',
    hint: 'Send the source code to run.',
  },
  code_too_large: {
    kind: 'invalid_argument',
    message: 'code is {bytes} bytes; the maximum is {limitBytes} bytes.',
    hint: 'Pass large data as files, or have the code download or generate it.',
  },
  language_unavailable: {
    kind: 'invalid_argument',
    message: "Language '{language}' is not available in this profile. Available languages: {offered}.",
    hint: 'Use one of the available languages.',
  },
  timeout_too_long: {
    kind: 'invalid_argument',
    message: 'timeout is {seconds} s; the maximum in this profile is {limitSeconds} s.',
    hint: 'Use a shorter timeout or split the work into several runs.',
  },
  threads_unavailable: {
    kind: 'invalid_argument',
    message: 'thread_id is not supported: the profile of this key has no storage.',
    hint: 'Omit thread_id. Each call then starts in a new sandbox.',
  },
  volumes_unavailable: {
    kind: 'invalid_argument',
    message: 'Volumes are not available on this server.',
    hint: 'Use source thread with the thread_id of the call that wrote the file.',
  },

  // Images
  image_unknown: {
    kind: 'not_found',
    message: "The image '{image}' does not exist on this server.",
    hint: 'Omit image for the default one, or ask an operator to add it.',
  },
  image_invalid: {
    kind: 'invalid_argument',
    message: "The image '{image}' cannot be used: {problem}.",
    hint: 'Check the image with the tool that built it, then import or pull it again.',
  },
  image_too_large: {
    kind: 'resource_too_large',
    message: "The image '{image}' exceeds {setting} ({limit}).",
    hint: 'Use a smaller image, or raise the setting.',
  },
  images_full: {
    kind: 'state_conflict',
    message: 'This server has reached the maximum of {limit} images.',
    hint: 'Remove images that are not needed.',
  },
  registry_failed: {
    kind: 'upstream_error',
    message: "The registry {registry} could not provide '{image}': {problem}.",
    hint: 'Check the reference and image_registries, then retry. Parts that have arrived are kept.',
  },
  build_failed: {
    kind: 'unavailable',
    message: "The image '{image}' could not be built: {problem}.",
    hint: 'Fix the cause, then retry. Packages that were downloaded are kept.',
  },

  // Threads, volumes and the files in them
  thread_unknown: {
    kind: 'not_found',
    message: 'The thread {thread} does not exist.',
    hint: 'Check the name. A thread is created by its first run.',
  },
  thread_busy: {
    kind: 'busy',
    message: 'Conflict: thread {thread} is busy.',
    hint: 'Calls with the same thread_id run one at a time: wait until the other call has returned and retry, or use another thread_id.',
  },
  thread_exists: {
    kind: 'conflict',
    message: 'Conflict: thread {thread} already exists.',
    hint: 'Choose another name, or delete that thread first.',
  },
  volume_unknown: {
    kind: 'not_found',
    message: 'The volume {volume} does not exist.',
    hint: 'List the volumes of this key with GET /v1/volumes. Only the operator can create volumes.',
  },
  volume_busy: {
    kind: 'busy',
    message: 'Conflict: volume {volume} is in use.',
    hint: 'Wait until the runs that mount it have ended, then retry.',
  },
  volume_read_only: {
    kind: 'read_only',
    message: 'The volume {volume} is read-only for this key.',
    hint: 'Write to another volume, or ask an administrator for a profile that mounts this one as rw.',
  },
  volume_missing: {
    kind: 'conflict',
    message: 'The profile of this key mounts the volume {volume}, which does not exist.',
    hint: 'Ask the operator to create it (glovebox volumes create) or to remove it from the profile.',
  },
  secret_missing: {
    kind: 'conflict',
    message: 'The profile of this key names the secret {secret}, which does not exist.',
    hint: 'Ask the operator to register it (glovebox secrets set) or to remove it from the profile.',
  },
  storage_unavailable: {
    kind: 'invalid_argument',
    message: 'This server has no storage: none of its profiles has threads or volumes.',
    hint: 'Enable storage or add volumes in a profile, then restart the server.',
  },
  path_invalid: {
    kind: 'invalid_argument',
    message: 'Invalid path: it {problem}.',
    hint: 'Use a path relative to the home directory, for example results/table.csv. Symbolic links are not followed.',
  },
  path_too_deep: {
    kind: 'invalid_argument',
    message: 'The path has {depth} components; the maximum is {limitDepth}.',
    hint: 'Use fewer nested directories.',
  },
  link_invalid: {
    kind: 'unauthenticated',
    message: 'This link is invalid or has expired.',
    hint: 'Request a new link with POST /v1/files/download or /v1/files/upload. A link expires with its time limit and with its key.',
  },
  link_used: {
    kind: 'state_conflict',
    message: 'This link has already been used.',
    hint: 'Request a new link.',
  },
  length_required: {
    kind: 'length_required',
    message: 'An upload needs a body of {sizeBytes} bytes, with Content-Length or Transfer-Encoding: chunked.',
    hint: 'With curl, use -T FILE.',
  },
  upload_too_large: {
    kind: 'body_too_large',
    message: 'The file is {givenBytes} bytes; this link accepts {sizeBytes} bytes.',
    hint: 'Request a link for the exact size.',
  },
  upload_broken: {
    kind: 'incomplete_upload',
    message: 'The upload ended after {receivedBytes} of {sizeBytes} bytes; nothing was written.',
    hint: 'Upload the whole file again.',
  },
  upload_too_slow: {
    kind: 'request_timeout',
    message: 'The upload is slower than {minBytesPerSecond} bytes per second; nothing was written.',
    hint: 'Upload the file again over a faster connection, or ask the operator to lower upload_min_rate.',
  },
  transfers_full: {
    kind: 'rate_limited',
    message:
      'This key has reached the maximum of {limit} files or large requests that are transferred at the same time.',
    hint: 'Wait for the others to finish, then retry in {retryAfterSeconds} s.',
  },
  range_unsatisfiable: {
    kind: 'range_not_satisfiable',
    message: 'The range starts after the end of the file, which is {sizeBytes} bytes.',
    hint: 'Request a range within the file.',
  },
  run_image_unknown: {
    kind: 'not_found',
    message: 'The run has no image {number}, or its output is no longer kept.',
    hint: 'Get the run to see its images. They are numbered from 1.',
  },
  path_not_found: {
    kind: 'not_found',
    message: '{path} does not exist.',
    hint: 'List the directory to see its entries.',
  },
  path_exists: {
    kind: 'conflict',
    message: '{path} already exists.',
    hint: 'Use another name, or delete it first.',
  },
  not_a_file: {
    kind: 'invalid_argument',
    message: '{path} is not a regular file but a {kind}.',
    hint: 'Use the path of a regular file. Symbolic links are not followed.',
  },
  not_a_directory: {
    kind: 'invalid_argument',
    message: '{path} is not a directory.',
    hint: 'Use the path of the directory itself. Symbolic links to directories are not followed.',
  },
  directory_not_empty: {
    kind: 'conflict',
    message: 'The directory {path} is not empty.',
    hint: 'Delete its contents first, or delete it recursively.',
  },
  partly_deleted: {
    kind: 'conflict',
    message: '{deleted} files and directories were deleted, then {path} failed: {problem}',
    hint: 'List the directory, then delete the rest.',
  },
  range_invalid: {
    kind: 'range_invalid',
    message: 'The range starts at byte {offset}; the file has {sizeBytes} bytes.',
    hint: 'Request a range within the file.',
  },
  path_denied: {
    kind: 'forbidden',
    message: 'The user of the sandbox has no permission for {path}.',
    hint: 'Use a path that this user can access, or another user, such as root of the sandbox.',
  },
  file_busy: {
    kind: 'busy',
    message: '{path} is in use by a program.',
    hint: 'Retry after the program has closed it.',
  },
  storage_full: {
    kind: 'storage_full',
    message: 'The storage is full: no space or no inodes are left.',
    hint: 'Delete files that are not needed, or ask for a larger quota.',
  },
  reserved_names_taken: {
    kind: 'conflict',
    message: 'All names reserved for unfinished writes (.glovebox-0 to .glovebox-31) are taken in the home directory.',
    hint: 'Delete the files with these names.',
  },

  // Capacity and state
  queue_full: {
    kind: 'unavailable',
    message: 'All slots are busy ({running} running) and the queue is full ({waiting} waiting).',
    hint: 'Retry in {retryAfterSeconds} s.',
  },
  requests_full: {
    kind: 'rate_limited',
    message: 'This {who} has reached the maximum of {limit} open requests and streams.',
    hint: 'Close streams that are not needed, or retry in {retryAfterSeconds} s.',
  },
  buffers_full: {
    kind: 'rate_limited',
    message: 'The memory for request bodies and unread responses of this organization is used up.',
    hint: 'Read responses as they arrive, send fewer large bodies at the same time, or retry in {retryAfterSeconds} s.',
  },
  connections_full: {
    kind: 'unavailable',
    message: 'The server has reached its maximum number of connections.',
    hint: 'Retry shortly, and keep connections open between requests.',
  },
  queue_timeout: {
    kind: 'unavailable',
    message: 'All slots are busy ({running} running); the run waited {waitedSeconds} s without getting one.',
    hint: 'Retry in {retryAfterSeconds} s.',
  },
  runtime_busy: {
    kind: 'rate_limited',
    message: 'The tool {tool} is running, and expensive tools run one at a time.',
    hint: 'Retry in {retryAfterSeconds} s.',
  },
  tool_failed: {
    kind: 'internal_error',
    message: 'The tool failed (id {faultId}).',
    hint: 'Read the cause with logging_search_entries, with this id as the keyword.',
  },
  heap_dump_refused: {
    kind: 'conflict',
    message: 'No heap dump was written: {problem}.',
    hint: 'Use node_get_top_allocators, which needs no memory and contains no data.',
  },
  unavailable: {
    kind: 'unavailable',
    message: 'The service is temporarily unavailable: {reason}.',
    hint: 'Retry shortly.',
  },
  packages_installing: {
    kind: 'unavailable',
    message: 'The packages of the profile {profile} are being installed.',
    hint: 'Retry in {retryAfterSeconds} s.',
  },
  packages_failed: {
    kind: 'configuration_error',
    message: 'The packages of the profile {profile} could not be installed: {problem}.',
    hint: 'Correct the packages or the network of the profile. The next attempt is possible in {retryAfterSeconds} s.',
  },
  disk_unavailable: {
    kind: 'unavailable',
    message: 'The server cannot store data now: {problem}.',
    hint: 'Retry later. Operators find the first cause in the log; see docs/durability.md.',
  },
  files_busy: {
    kind: 'unavailable',
    message: 'Too many files are being read and written at the same time.',
    hint: 'Retry in {retryAfterSeconds} s.',
  },
  subject_conflict: {
    kind: 'conflict',
    message: 'Conflict: thread {thread} belongs to another subject.',
    hint: 'Use another thread_id, or omit subject: a run on a thread belongs to the subject of the thread.',
  },
  subject_active: {
    kind: 'busy',
    message: 'Conflict: {what} of this subject is in use.',
    hint: 'Wait until its runs have ended, or cancel them, then retry.',
  },
  run_unknown: {
    kind: 'not_found',
    message: 'The run {runId} does not exist.',
    hint: 'Use the trace_id from the result of the run.',
  },
  idempotency_conflict: {
    kind: 'arguments_conflict',
    message: 'idempotency_key {idempotencyKey} was already used with different arguments.',
    hint: 'Use a new key for each different call. Repeat a key only with identical arguments.',
  },
  task_unknown: {
    kind: 'not_found',
    message: 'The task {task} does not exist or has expired.',
    hint: 'Use the key that created the task. A task is available for one day.',
  },
  run_finished: {
    kind: 'conflict',
    message: 'Run {runId} has already ended.',
    hint: 'No action is needed: a run that has ended cannot be cancelled.',
  },

  // Stateful code in sandboxes
  context_unknown: {
    kind: 'not_found',
    message: "The context '{context}' does not exist in this sandbox.",
    hint: 'List the contexts of the sandbox, or omit the context to use the default one of the language.',
  },
  contexts_full: {
    kind: 'rate_limited',
    message: 'This sandbox has reached the maximum of {limit} contexts.',
    hint: 'Delete a context that is not needed.',
  },
  context_language: {
    kind: 'invalid_argument',
    message: "The context '{context}' runs {language}.",
    hint: 'Use a context of the language of the code, or omit the context.',
  },
  context_busy: {
    kind: 'busy',
    message: "The context '{context}' has reached the maximum of {limit} waiting calls.",
    hint: 'Wait until calls have ended, or use another context: calls of one context run one after another.',
  },
  input_full: {
    kind: 'busy',
    message: 'Process {process} does not read its input, and as much waits for it as can.',
    hint: 'Write more when it reads, or end it.',
  },
  interpreter_missing: {
    kind: 'invalid_argument',
    message: "The image of this sandbox cannot run '{language}': {reason}.",
    hint: 'Use another language, or a sandbox with an image that contains its interpreter.',
  },
  rewind_unavailable: {
    kind: 'state_conflict',
    message: "The context '{context}' cannot be rewound: {reason}.",
    hint: 'Restart the context for an empty state, or run code that undoes the change.',
  },

  // Named sandboxes
  sandbox_unknown: {
    kind: 'not_found',
    message: "Sandbox '{sandbox}' does not exist in the namespace '{namespace}'.",
    hint: 'List the sandboxes, or start one with this name.',
  },
  port_closed: {
    kind: 'upstream_error',
    message: 'Nothing accepts connections on port {port} of the sandbox.',
    hint: 'Start a server in the sandbox that listens on this port of 127.0.0.1, ::1 or all addresses, then retry.',
  },
  port_unpublished: {
    kind: 'not_found',
    message: 'Port {port} of this sandbox is not published.',
    hint: 'List the published ports of the sandbox.',
  },
  ports_full: {
    kind: 'state_conflict',
    message: 'The sandbox has {max} published ports, which is the limit.',
    hint: 'Withdraw one of them first.',
  },
  preview_invalid: {
    kind: 'not_found',
    message: 'This preview address is invalid, has expired or was withdrawn.',
    hint: 'Publish the port again to get a new address.',
  },
  preview_failed: {
    kind: 'upstream_error',
    message:
      'The server in the sandbox closed the connection before it had responded, or its response is not valid HTTP.',
    hint: 'Check the output of the server in the sandbox.',
  },
  preview_denied: {
    kind: 'unauthenticated',
    message: 'This preview is for keys of its organization.',
    hint: 'Open its signed link, or send a key as a bearer token.',
  },
  previews_full: {
    kind: 'rate_limited',
    message: 'The {owner} has {max} connections to previews, which is the limit.',
    hint: 'Close some of them, or retry in {retryAfterSeconds} s.',
  },
  preview_traffic: {
    kind: 'rate_limited',
    message: 'The previews of the {owner} have transferred {max} bytes within an hour, which is the limit.',
    hint: 'Retry in {retryAfterSeconds} s.',
  },
  sandbox_exists: {
    kind: 'conflict',
    message: "Conflict: sandbox '{sandbox}' already exists in the namespace '{namespace}'.",
    hint: 'Use the existing one, delete it, or choose another name.',
  },
  sandbox_not_running: {
    kind: 'state_conflict',
    message: "Sandbox '{sandbox}' is {state}.",
    hint: 'Start it, or resume it if it is paused, then retry. Its disk is kept.',
  },
  sandbox_busy: {
    kind: 'busy',
    message: "Conflict: sandbox '{sandbox}' is changing its state.",
    hint: 'Retry when it has started or stopped.',
  },
  sandbox_failed: {
    kind: 'unavailable',
    message: "Sandbox '{sandbox}' could not be started: {reason}.",
    hint: 'Retry. If it fails again, delete the sandbox and create it with other settings.',
  },
  sandboxes_full: {
    kind: 'rate_limited',
    message: 'This organization has reached the maximum of {limit} sandboxes, stopped ones included.',
    hint: 'Delete sandboxes that are not needed.',
  },
  namespace_denied: {
    kind: 'forbidden',
    message: "This key cannot use the namespace '{namespace}'.",
    hint: 'Use a namespace of this key, or ask an administrator to add it.',
  },
  process_unknown: {
    kind: 'not_found',
    message: 'The process {process} does not exist in this sandbox.',
    hint: 'List the processes of the sandbox. Processes end when it stops.',
  },
  command_is_shell: {
    kind: 'invalid_argument',
    message: 'command must be the name of one program; {command} is a command line.',
    hint: 'Pass the arguments in args. For pipes, redirections, && and variables, run a shell: command "bash", args ["-c", "…"].',
  },

  // The transport of 2024-11-05
  message_session_missing: {
    kind: 'invalid_params',
    message: 'Missing sessionId.',
    hint: 'Send messages to the address in the endpoint event of GET /sse.',
  },
  message_session_unknown: {
    kind: 'invalid_params',
    message: 'Invalid session ID.',
    hint: 'The stream of this session has ended. Open a new one with GET /sse.',
  },
  messages_full: {
    kind: 'rate_limited',
    message: '{limit} messages of this session are being answered, which is the maximum.',
    hint: 'Wait for one of the answers.',
  },

  // Workspaces
  workspace_failed: {
    kind: 'unavailable',
    message: 'The agent of the workspace failed: {reason}.',
    hint: 'Retry: it is started again. If it fails again, check that the image has Python 3.8 or later.',
  },
  workspace_read_only: {
    kind: 'read_only',
    message: 'The workspaces of this key are read-only.',
    hint: 'Use a tool that only reads, or ask an administrator for a key with another profile.',
  },
  workspace_busy: {
    kind: 'rate_limited',
    message: '{limit} calls of this workspace are in progress, which is the maximum.',
    hint: 'Wait for one of them to end.',
  },
  review_unavailable: {
    kind: 'invalid_argument',
    message: 'The workspace {workspace} has the mode {mode}, so no changes wait for review.',
    hint: 'Changes are made in the directory itself. Start the server with the mode review to keep them apart.',
  },

  // Upstreams
  upstream_unknown: {
    kind: 'not_found',
    message: 'MCP server not found: {upstream}',
    hint: 'GET /v1/mcp/servers lists the servers that this key can call.',
  },
  upstream_failed: {
    kind: 'upstream_error',
    message: 'The upstream server {upstream} failed: {problem}.',
    hint: 'Retry later. If the error persists, an administrator can examine it with glovebox upstreams test.',
  },
  upstream_misconfigured: {
    kind: 'configuration_error',
    message: 'The upstream server {upstream} is not configured correctly: {problem}.',
    hint: 'An administrator corrects it with glovebox upstreams update.',
  },
  upstream_timeout: {
    kind: 'upstream_timeout',
    message: 'Upstream server did not respond within {seconds} seconds',
    hint: 'Retry later, split the operation, or ask an administrator for a longer timeout.',
  },
  upstream_login_required: {
    kind: 'configuration_error',
    message: 'The upstream server {upstream} requires a login: {problem}. {remedy}.',
    hint: 'Retry after the login.',
  },
  upstream_login_failed: {
    kind: 'upstream_error',
    message: 'The login to {upstream} failed: {problem}.',
    hint: 'Start a new login. Some authorization servers require a client that was registered by hand; set its client_id.',
  },
  upstream_tool_denied: {
    kind: 'forbidden',
    message: 'The tool {tool} of {upstream} cannot be called: {reason}.',
    hint: 'Use another tool, or ask an administrator to allow it.',
  },
  upstream_session_unknown: {
    kind: 'session_not_found',
    message: 'The session does not exist or has ended.',
    hint: 'Open a new session with a GET request to the address of the server.',
  },
  upstream_rate_limited: {
    kind: 'rate_limited',
    message: 'This key may send {limit} requests to upstream servers per minute.',
    hint: 'Retry in {retryAfterSeconds} s.',
  },
  upstream_full: {
    kind: 'rate_limited',
    message: 'Too many calls to {upstream} are in progress ({limit}).',
    hint: 'Retry in {retryAfterSeconds} s.',
  },
  upstream_programs_full: {
    kind: 'rate_limited',
    message: 'The program of {upstream} cannot be started: {limit} {what} are in use.',
    hint: 'Retry in {retryAfterSeconds} s, or ask the operator for a higher limit.',
  },
  fault: {
    kind: 'internal_error',
    message: 'Internal error (id {faultId}).',
    hint: 'Retry. If the error persists, report this id to the operator.',
  },
} as const satisfies Record<string, RefusalText>
