import { setTimeout as sleep } from 'node:timers/promises'
import { median, quantile, shown, table } from '../figures.ts'
import type { GloveboxServer } from '../glovebox-server.ts'

/** Times measured from the moment at which a client cancels. */
export interface CancelFigure {
  what: string
  p50Ms: number
  p99Ms: number
  maxMs: number
  count: number
}

/** Longer than the start of a warm run, so that the cancelled program is running. */
const runningMs = 60
const code = 'trap "" TERM INT HUP; sleep 60 & sleep 60'

/**
 * Cancels runs that ignore every signal they can, each in a thread, and uses the thread again immediately.
 * @param rounds per protocol version.
 * @throws Error when a call does not end by its cancellation.
 */
export async function measureCancel(server: GloveboxServer, rounds: number): Promise<CancelFigure[]> {
  const took = { answer: [] as number[], legacyFree: [] as number[], modernFree: [] as number[] }
  for (let round = 0; round < rounds; round++) {
    const thread = `cancel-${round % 4}`
    await server.callTool('true', 'bash', thread)
    const legacy = await cancelLegacy(server, thread, round)
    took.answer.push(legacy.answerMs)
    took.legacyFree.push(legacy.freeMs)
    took.modernFree.push(await cancelModern(server, thread, round))
  }
  return [
    figure('notifications/cancelled, to the answer of the call', took.answer),
    figure('notifications/cancelled, to the answer of the next call in its thread', took.legacyFree),
    figure('hanging up in 2026-07-28, to the answer of the next call in its thread', took.modernFree),
  ]
}

function figure(what: string, tookMs: readonly number[]): CancelFigure {
  const [p50Ms, p99Ms] = [median(tookMs), quantile(tookMs, 0.99)]
  return { what, p50Ms, p99Ms, maxMs: Math.max(...tookMs), count: tookMs.length }
}

const post = (server: GloveboxServer, message: object, headers: Record<string, string> = {}, signal?: AbortSignal) =>
  fetch(`${server.url}/mcp`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json', ...headers },
    body: JSON.stringify({ jsonrpc: '2.0', ...message }),
    ...(signal && { signal }),
  }).then((response) => response.text())

const call = (thread: string) => ({ name: 'sandbox_execute', arguments: { code, language: 'bash', thread_id: thread } })

async function cancelLegacy(server: GloveboxServer, thread: string, round: number) {
  const id = `legacy ${round}`
  const answer = post(server, { id, method: 'tools/call', params: call(thread) })
  await sleep(runningMs)
  const cancelledMs = performance.now()
  await post(server, { method: 'notifications/cancelled', params: { requestId: id } })
  const text = await answer
  if (!text.includes('"kind":"cancelled"')) throw new Error(`a cancelled call answered ${text.slice(0, 300)}`)
  const answerMs = performance.now() - cancelledMs
  await untilFree(server, thread)
  return { answerMs, freeMs: performance.now() - cancelledMs }
}

async function cancelModern(server: GloveboxServer, thread: string, round: number): Promise<number> {
  const key = (name: string) => `io.modelcontextprotocol/${name}`
  const _meta = { [key('protocolVersion')]: '2026-07-28', [key('clientCapabilities')]: {} }
  const headers = {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': 'sandbox_execute',
  }
  const leaving = new AbortController()
  const message = { id: `modern ${round}`, method: 'tools/call', params: { ...call(thread), _meta } }
  const answer = post(server, message, headers, leaving.signal).catch(() => 'left')
  await sleep(runningMs)
  const leftMs = performance.now()
  leaving.abort()
  const said = await answer
  if (said !== 'left') throw new Error(`a call answered before it was left: ${said.slice(0, 300)}`)
  await untilFree(server, thread)
  return performance.now() - leftMs
}

/** A thread is busy until the last process of its run is dead; an earlier call is rejected. */
async function untilFree(server: GloveboxServer, thread: string): Promise<void> {
  const message = { id: 1, method: 'tools/call' }
  const params = { name: 'sandbox_execute', arguments: { code: 'true', language: 'bash', thread_id: thread } }
  for (;;) {
    const text = await post(server, { ...message, params })
    if (text.includes('"exit_code":0')) return
    if (!text.includes('busy') && !text.includes('running something else'))
      throw new Error(`the next call in the thread answered ${text.slice(0, 300)}`)
  }
}

/** Formats a section of the page. */
export function cancelPart(figures: readonly CancelFigure[]): string {
  const rows = figures.map(({ what, p50Ms, p99Ms, maxMs, count }) => [
    what,
    ...[p50Ms, p99Ms, maxMs].map(shown),
    String(count),
  ])
  return [
    '## Cancellation',
    '',
    table(['from the moment of cancelling', 'p50 ms', 'p99 ms', 'longest ms', 'calls'], rows),
    '',
    'Two processes that ignore every signal they can, in a thread. The next call in the thread is sent as soon as the one',
    'before is over, and again while it is refused because the thread is busy.',
  ].join('\n')
}
