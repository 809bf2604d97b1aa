import type { Agent, RequestInit as UndiciRequestInit } from 'undici'
import { fetch } from 'undici'

/** Values of all responses: libraries build each, and hold the event loop meanwhile. A list of a thousand tools has 100,000. */
const valuesMax = 300_000

const [comma, openBracket, openBrace] = [0x2c, 0x5b, 0x7b]

/** Returns a `fetch` that connects with `agent`. It fails after `maxBytes` of responses in total, or too many values in them. */
export function boundedFetch(agent: Agent, signal: AbortSignal, maxBytes: number): typeof globalThis.fetch {
  let receivedBytes = 0
  let values = 0
  const bounded = async (url: string | URL, init: UndiciRequestInit = {}) => {
    const signals = init.signal ? AbortSignal.any([init.signal, signal]) : signal
    const response = await fetch(url, { redirect: 'error', ...init, signal: signals, dispatcher: agent })
    const counted = response.body?.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform(piece, controller) {
          receivedBytes += piece.length
          values += valuesIn(piece)
          if (values > valuesMax) controller.error(new Error(`its responses hold more than ${valuesMax} values`))
          else if (receivedBytes > maxBytes) controller.error(new Error('its responses are too large'))
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

/** Counts the bytes that begin or follow a value of JSON, those in strings included. */
function valuesIn(piece: Uint8Array): number {
  let values = 0
  for (let at = 0; at < piece.length; at++) {
    const byte = piece[at]
    if (byte === comma || byte === openBracket || byte === openBrace) values += 1
  }
  return values
}
