/** Calls of a mixed load to everything that keeps state beside runs: sandboxes, their code and files, workspaces, upstreams. */
import { callTool, post } from '../test/support/calls.ts'
import type { Place } from '../test/support/glovebox.ts'
import { runCommand } from '../test/support/keys.ts'
import { openUpstream, type TestUpstream } from '../test/support/upstreams.ts'
import type { Fact } from './mixed-load.ts'

const sandboxCount = 3
const upstream = 'bench/echo'

/** Registers an upstream that returns the text it receives. */
export async function addUpstream(place: Place): Promise<TestUpstream> {
  const echo = await openUpstream((_request, response, body) => {
    const { id, params } = JSON.parse(body.toString('utf8'))
    const result = { content: [{ type: 'text', text: String(params?.arguments?.text) }] }
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ jsonrpc: '2.0', id, result }))
  })
  const words = ['upstreams', 'add', upstream, echo.url, '--org', 'default', '--outbound-allow', '127.0.0.1']
  const { code, stderr } = await runCommand(place, words)
  if (code !== 0) throw new Error(`no upstream: ${stderr}`)
  return echo
}

/** Throws where an answer has another status. */
function requireStatus(what: string, status: number, ...expected: number[]): void {
  if (!expected.includes(status)) throw new Error(`${what} was answered with ${status}`)
}

const textOf = async (response: Response, what: string): Promise<string> => {
  const text = await response.text()
  requireStatus(what, response.status, 200)
  return text
}

/** Nothing is found of it later: what it answers is checked at once. */
const checked: Fact['check'] = async () => undefined

function requireSame(what: string, actual: string | undefined, expected: string): Fact {
  const isSame = actual?.trim() === expected
  return { what, check: isSame ? checked : async () => `contains ${JSON.stringify(actual?.slice(0, 60))}` }
}

async function requireSandbox(url: string, name: string): Promise<string> {
  const { status } = await post(`${url}/v1/sandboxes`, { name })
  requireStatus('a sandbox', status, 201, 409)
  const started = await post(`${url}/v1/sandboxes/${name}/start`, {})
  requireStatus('the start of a sandbox', started.status, 200, 409)
  return `${url}/v1/sandboxes/${name}`
}

export async function calledTool(url: string, n: number): Promise<Fact> {
  const { status, body } = await callTool(url, { language: 'python', code: `print(${n})` })
  requireStatus('a tool', status, 200)
  const { ending, stdout } = body.result?.structuredContent ?? {}
  if (ending?.kind !== 'exited') throw new Error(`ended as ${ending?.kind}`)
  return requireSame(`tool call ${n}`, stdout, `${n}`)
}

/** Writes a file with a command, which is read as a file later. */
export async function commanded(url: string, n: number): Promise<Fact> {
  const name = `soak-${n % sandboxCount}`
  const sandbox = await requireSandbox(url, name)
  const args = ['-c', `mkdir -p kept && echo ${n} >kept/file-${n}`]
  const { status, body } = await post<{ exit_code: number }>(`${sandbox}/commands`, { command: 'bash', args })
  requireStatus('a command', status, 200)
  if (body.exit_code !== 0) throw new Error(`a command exited with ${body.exit_code}`)
  return {
    what: `kept/file-${n} of ${name}`,
    check: async (now) => {
      const response = await fetch(`${now}/v1/sandboxes/${name}/files/content?path=kept/file-${n}`)
      const text = await textOf(response, 'a file')
      return text === `${n}\n` ? undefined : `contains ${JSON.stringify(text.slice(0, 40))}`
    },
  }
}

/** A sandbox that exists only for one call. */
export async function usedOnce(url: string, n: number): Promise<Fact> {
  const name = `once-${n}`
  await requireSandbox(url, name)
  const deleted = await fetch(`${url}/v1/sandboxes/${name}`, { method: 'DELETE' })
  requireStatus('a deletion', deleted.status, 204)
  return {
    what: `sandbox ${name}`,
    check: async (now) => {
      const { status, body } = await fetch(`${now}/v1/sandboxes/${name}`)
      await body?.cancel()
      return status === 404 ? undefined : `is answered with ${status}`
    },
  }
}

/** An expression in an interpreter that keeps its state. */
export async function evaluated(url: string, n: number): Promise<Fact> {
  const sandbox = await requireSandbox(url, `soak-${n % sandboxCount}`)
  const call = { language: 'python', code: `x = ${n}\nprint(x)` }
  const { status, body } = await post<{ stdout: string }>(`${sandbox}/code`, call)
  requireStatus('code', status, 200)
  return requireSame(`code ${n}`, body.stdout, `${n}`)
}

async function callWorkspace(url: string, name: string, args: object): Promise<string> {
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } }
  const accept = { accept: 'application/json, text/event-stream' }
  const { status, body } = await post<{ result?: { content: { text: string }[]; isError?: boolean } }>(
    `${url}/mcp?toolsets=workspace`,
    message,
    accept,
  )
  requireStatus(name, status, 200)
  if (body.result === undefined || body.result.isError === true) throw new Error(`${name}: ${JSON.stringify(body)}`)
  return body.result.content.map(({ text }) => text).join('\n')
}

/** Writes a file with a tool of a workspace, which is read with one later. */
export async function edited(url: string, n: number): Promise<Fact> {
  const workspace = `soak-${n % sandboxCount}`
  const file = { file_path: `edited-${n}.txt`, workspace }
  await requireSandbox(url, workspace)
  await callWorkspace(url, 'Write', { ...file, content: `text ${n}\n` })
  return {
    what: `edited-${n}.txt of ${workspace}`,
    check: async (now) => {
      const text = await callWorkspace(now, 'Read', file)
      return text.includes(`text ${n}`) ? undefined : `contains ${JSON.stringify(text.slice(0, 40))}`
    },
  }
}

export async function relayed(url: string, n: number): Promise<Fact> {
  const call = { name: 'echo', arguments: { text: `text ${n}` } }
  const response = await fetch(`${url}/${upstream}/sse`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    body: JSON.stringify({ jsonrpc: '2.0', id: n, method: 'tools/call', params: call }),
  })
  const text = await textOf(response, 'an upstream')
  return { what: `relayed call ${n}`, check: text.includes(`text ${n}`) ? checked : async () => `answered ${text}` }
}
