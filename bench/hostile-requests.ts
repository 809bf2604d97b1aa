/** Attacks with requests. */
import { once } from 'node:events'
import { Agent, type ClientRequest, type IncomingMessage, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { post } from '../test/support/calls.ts'
import { type Attack, codeSeconds, type HostileWork, repeat, runCode, type Tally } from './hostile-attack.ts'

const manyStreams = 20_000
/** Connections that this process can have open, besides its files. */
const openMax = 8_000

function bigIds({ url, headers }: HostileWork, tally: Tally, stop: AbortSignal): Promise<void> {
  const id = 'x'.repeat(4_000_000)
  const body = JSON.stringify({ jsonrpc: '2.0', id, method: 'subscriptions/listen', params: { notifications: {} } })
  const more = {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'subscriptions/listen',
    accept: 'text/event-stream',
  }
  return repeat(tally, stop, 8, async () => (await post(`${url}/mcp`, body, { ...headers, ...more })).status)
}

/** Opens streams until the server or this process has no more connections, and opens those anew that were refused. */
async function streams({ url, headers }: HostileWork, tally: Tally, stop: AbortSignal): Promise<void> {
  const agent = new Agent({ keepAlive: false, maxSockets: openMax })
  const open = new Set<ClientRequest>()
  const openOne = () => {
    tally.attempts += 1
    const sent = request(`${url}/mcp`, { agent, headers: { ...headers, accept: 'text/event-stream' } })
    open.add(sent)
    sent.once('response', (response) => {
      if (response.statusCode !== 200) tally.refused += 1
      response.resume()
    })
    sent.once('error', () => undefined)
    sent.once('close', () => open.delete(sent))
    sent.end()
  }
  while (!stop.aborted) {
    for (let n = 0; n < 100 && open.size < openMax && tally.attempts < manyStreams; n++) openOne()
    await sleep(20)
  }
  for (const sent of open) sent.destroy()
  agent.destroy()
}

/** Uploads of 10 GiB whose bytes arrive one a second. */
async function slowUploads({ url, port, headers }: HostileWork, tally: Tally, stop: AbortSignal): Promise<void> {
  const size = 10 * 2 ** 30
  const begin = async (n: number): Promise<Socket | undefined> => {
    const file = { source: 'thread', id: `slow-${n}`, path: 'f', size }
    tally.attempts += 1
    const answer = await post<{ url: string }>(`${url}/v1/files/upload`, file, headers)
    if (answer.status !== 200) {
      tally.refused += 1
      return undefined
    }
    const { pathname, host } = new URL(answer.body.url)
    const socket = connect(port, '127.0.0.1').on('error', () => undefined)
    await once(socket, 'connect')
    socket.write(`PUT ${pathname} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${size}\r\n\r\n`)
    socket.once('data', () => (tally.refused += 1))
    return socket
  }
  const sockets = new Map<number, Socket | undefined>()
  while (!stop.aborted) {
    for (let n = 0; n < 16; n++) {
      const socket = sockets.get(n)
      if (socket === undefined || socket.destroyed || !socket.writable) sockets.set(n, await begin(n))
      else socket.write('x')
    }
    await sleep(1_000, undefined, { signal: stop }).catch(() => undefined)
  }
  for (const socket of sockets.values()) socket?.destroy()
}

function searches({ url, headers }: HostileWork, tally: Tally, stop: AbortSignal): Promise<void> {
  const paths = ['?metadata.nothing=none', '?status=running', '?thread_id=none&status=failed', '?language=node']
  let n = 0
  return repeat(tally, stop, 8, async () => {
    const response = await fetch(`${url}/v1/executions${paths[n++ % paths.length]}`, { headers })
    await response.arrayBuffer()
    return response.status
  })
}

/** Runs that print without end, whose output is requested and never read. */
async function deafReaders({ url, headers }: HostileWork, tally: Tally, stop: AbortSignal): Promise<void> {
  const body = JSON.stringify({ language: 'python', code: 'while True: print("x" * 1000)', timeout: codeSeconds })
  const more = { 'content-type': 'application/json', accept: 'application/x-ndjson' }
  await repeat(tally, stop, 64, async () => {
    const sent = request(`${url}/v1/sandbox/execute`, { method: 'POST', headers: { ...headers, ...more } })
    sent.end(body)
    const [response] = (await once(sent, 'response')) as [IncomingMessage]
    await sleep(codeSeconds * 1000, undefined, { signal: stop }).catch(() => undefined)
    sent.destroy()
    return response.statusCode ?? 0
  })
}

/** More runs than may wait. */
const refusedCalls: Attack = (target, tally, stop) =>
  repeat(tally, stop, 400, () => runCode(target, 'import time; time.sleep(0.2)'))

function malformedCalls({ url, headers }: HostileWork, tally: Tally, stop: AbortSignal): Promise<void> {
  const bodies = ['{', '[]', '{"code":""}', '{"code":1}', '{"code":"1","timeout":99999}', '{"code":"1","nothing":true}']
  let n = 0
  return repeat(tally, stop, 8, async () => {
    const body = bodies[n++ % bodies.length]!
    return (await post(`${url}/v1/sandbox/execute`, body, headers)).status
  })
}

/** Connections that each send one request and are closed. */
function newConnections({ url, headers }: HostileWork, tally: Tally, stop: AbortSignal): Promise<void> {
  const agent = new Agent({ keepAlive: false })
  return repeat(tally, stop, 32, async () => {
    const sent = request(`${url}/v1/threads`, { agent, headers }).end()
    const [response] = (await once(sent, 'response')) as [IncomingMessage]
    response.resume()
    await once(response, 'close')
    return response.statusCode ?? 0
  })
}

export const requestAttacks: Readonly<Record<string, Attack>> = {
  'ids of 4 MB': bigIds,
  '20,000 streams': streams,
  'slow uploads': slowUploads,
  'searches without a match': searches,
  'deaf readers': deafReaders,
  'more calls than may wait': refusedCalls,
  'malformed calls': malformedCalls,
  'a connection for each call': newConnections,
}
