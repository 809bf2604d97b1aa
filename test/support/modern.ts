/** Requests of 2026-07-28 as its clients send them. */
const key = (name: string) => `io.modelcontextprotocol/${name}`
export const tasksExtension = key('tasks')

export interface ModernOptions {
  capabilities?: object
  /** Added to `params._meta`. */
  meta?: object
  /** Replace or extend the headers of the request; `undefined` omits one. */
  headers?: Record<string, string | undefined>
  id?: number | string
  path?: string
  signal?: AbortSignal
}

export interface ModernAnswer {
  status: number
  headers: Headers
  /** The messages before the response, when it is a stream. */
  messages: { method: string; params: Record<string, unknown> }[]
  body: {
    id?: unknown
    result?: Record<string, unknown> & { resultType: string }
    error?: { code: number; message: string; data?: Record<string, unknown> }
  }
}

const nameOf = (params: Record<string, unknown>): unknown => params.name ?? params.uri ?? params.taskId

/** Sends one request and returns the response without reading it. */
export function sendModern(
  url: string,
  method: string,
  params: Record<string, unknown> = {},
  { capabilities = {}, meta, headers, id = 1, path = '/mcp', signal }: ModernOptions = {},
): Promise<Response> {
  const _meta = { [key('protocolVersion')]: '2026-07-28', [key('clientCapabilities')]: capabilities, ...meta }
  const name = nameOf(params)
  const all: Record<string, string | undefined> = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': method,
    ...(typeof name === 'string' && { 'mcp-name': name }),
    ...headers,
  }
  return fetch(`${url}${path}`, {
    method: 'POST',
    headers: Object.fromEntries(
      Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined),
    ),
    body: JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta } }),
    ...(signal && { signal }),
  })
}

/** Sends one request and reads the complete response. */
export async function askModern(
  url: string,
  method: string,
  params: Record<string, unknown> = {},
  options: ModernOptions = {},
): Promise<ModernAnswer> {
  const response = await sendModern(url, method, params, options)
  const text = await response.text()
  const all = response.headers.get('content-type')?.startsWith('text/event-stream') ? toMessages(text) : [text]
  const parsed = all.filter((message) => message !== '').map((message) => JSON.parse(message))
  return {
    status: response.status,
    headers: response.headers,
    messages: parsed.slice(0, -1),
    body: parsed.at(-1) ?? {},
  }
}

/** The data of server-sent events. */
export const toMessages = (text: string): string[] =>
  text.split('\n').flatMap((line) => (line.startsWith('data: ') ? [line.slice('data: '.length)] : []))
