import { createParser } from 'eventsource-parser'

/** Longest event: a result with both output streams at their soft limits, encoded as JSON, is far shorter. */
const maxEventCharacters = 256 * 1024 * 1024

/**
 * Reads the data of each server-sent event of a response body as it arrives. An event may have several `data` lines and
 * any of the three line endings: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
 * @throws Error when an event is longer than the limit.
 */
export async function* readServerEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  let received: string[] = []
  let failure: Error | undefined
  const parser = createParser({
    maxBufferSize: maxEventCharacters,
    onEvent: ({ data }) => received.push(data),
    onError: (error) => {
      if (error.type === 'max-buffer-size-exceeded') failure = error
    },
  })
  const decoder = new TextDecoder()
  for await (const bytes of body) {
    parser.feed(decoder.decode(bytes, { stream: true }))
    const events = received
    received = []
    yield* events
    if (failure) throw failure
  }
}
