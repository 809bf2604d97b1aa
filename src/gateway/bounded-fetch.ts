import type { Agent, RequestInit as UndiciRequestInit } from 'undici'
import { fetch } from 'undici'

/** Returns a `fetch` that connects with `agent` and fails after `maxBytes` of responses in total. */
export function boundedFetch(agent: Agent, signal: AbortSignal, maxBytes: number): typeof globalThis.fetch {
  let receivedBytes = 0
  const bounded = async (url: string | URL, init: UndiciRequestInit = {}) => {
    const signals = init.signal ? AbortSignal.any([init.signal, signal]) : signal
    const response = await fetch(url, { redirect: 'error', ...init, signal: signals, dispatcher: agent })
    const counted = response.body?.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform(piece, controller) {
          receivedBytes += piece.length
          if (receivedBytes > maxBytes) controller.error(new Error('its responses are too large'))
          else controller.enqueue(piece)
        },
      }),
    )
    const { status, statusText, headers } = response
    return new Response((counted as ReadableStream | undefined) ?? null, {
      ...{ status, statusText, headers: [...headers] as [string, string][] },
    })
  }
  return bounded as unknown as typeof globalThis.fetch
}
