/** Calls to a running server as its clients make them. */
import { readLines } from '../../src/cli/lines.ts'

/** The fields that stories read; the result has more. */
export interface Execution {
  ending: { kind: string; code?: number; signal?: string; reason?: string; limit_ms?: number; limit_bytes?: number }
  exit_code: number | null
  stdout: string
  stderr: string
  stdout_bytes: number
  stderr_bytes: number
  stdout_truncated: boolean
  stderr_truncated: boolean
  duration_ms: number
  cpu_time_ms: number
  memory_peak_bytes: number
  oom_kills: number
  trace_id: string
}

export interface Answer<Body> {
  status: number
  headers: Headers
  body: Body
}

export interface RpcAnswer {
  jsonrpc: '2.0'
  id: number | string | null
  result?: { content: { type: string; text: string }[]; structuredContent: Execution; isError: boolean }
  error?: { code: number; message: string; data?: { error: string } }
}

const jsonHeaders = { 'content-type': 'application/json' }

/** @param body sent unchanged when it is a string, otherwise as JSON. */
export async function post<Body>(url: string, body: unknown, headers: object = {}): Promise<Answer<Body>> {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  const response = await fetch(url, { method: 'POST', headers: { ...jsonHeaders, ...headers }, body: text })
  const answer = await response.text()
  return { status: response.status, headers: response.headers, body: (answer ? JSON.parse(answer) : null) as Body }
}

/** Runs code over REST. @throws Error when the call is rejected. */
export async function execute(
  url: string,
  language: string,
  code: string,
  more: object = {},
  headers: object = {},
): Promise<Execution> {
  const answer = await post<Execution>(`${url}/v1/sandbox/execute`, { language, code, ...more }, headers)
  if (answer.status !== 200) throw new Error(`refused: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

export const executeBody = (id: number | string, args: object) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name: 'sandbox_execute', arguments: args },
})

/** Calls `sandbox_execute` over MCP. */
export const callTool = (url: string, args: object, headers: object = {}): Promise<Answer<RpcAnswer>> =>
  post<RpcAnswer>(`${url}/mcp`, executeBody(1, args), headers)

export interface Line extends Partial<Omit<Execution, 'stdout' | 'stderr'>> {
  type: string
  data?: string
  bytes?: number
}

/** A run whose output is streamed. */
export interface Following {
  runId: string
  /** The output received so far. */
  readonly output: string
  /** Resolves when the output contains this text. */
  said(text: string): Promise<void>
  /** The last line: the complete execution. */
  result: Promise<Line>
}

/** Runs code over REST and streams its output; resolves when the run has started. @throws Error when the call is rejected. */
export async function follow(
  url: string,
  language: string,
  code: string,
  more: object = {},
  headers: object = {},
): Promise<Following> {
  const response = await fetch(`${url}/v1/sandbox/execute`, {
    method: 'POST',
    headers: { ...jsonHeaders, accept: 'application/x-ndjson', ...headers },
    body: JSON.stringify({ language, code, ...more }),
  })
  if (response.status !== 200 || !response.body) throw new Error(`refused: ${response.status} ${await response.text()}`)
  const lines = readLines(response.body)
  const opening = JSON.parse((await lines.next()).value ?? '{}') as Line
  let output = ''
  const waiting = new Set<() => void>()
  const read = async (): Promise<Line> => {
    for await (const text of lines) {
      const line = JSON.parse(text) as Line
      output += line.data ?? ''
      for (const look of waiting) look()
      if (line.type === 'result') return line
    }
    throw new Error('the lines stopped before a result')
  }
  const result = read()
  const said = async (text: string): Promise<void> => {
    const heard = new Promise<void>((resolve) => waiting.add(() => output.includes(text) && resolve()))
    if (output.includes(text)) return
    await Promise.race([heard, result])
    if (!output.includes(text)) throw new Error(`it ended without saying ${text}: ${JSON.stringify(await result)}`)
  }
  result.catch(() => undefined)
  return {
    runId: opening.trace_id ?? '',
    get output() {
      return output
    },
    said,
    result,
  }
}
