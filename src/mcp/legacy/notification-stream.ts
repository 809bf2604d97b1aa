import type { Change } from '../changes.ts'
import type { McpContext } from '../handle.ts'
import { notificationText } from '../json-rpc.ts'
import type { Session } from './sessions.ts'

/** Told and not yet read; a client that is further behind misses the oldest. */
const maxWaiting = 256

/**
 * What a client that opened a stream with GET is told: changes, where it has a session, and otherwise nothing; the
 * stream is then only kept alive, for clients that insist on one.
 */
export async function* news(
  session: Session | undefined,
  { changes, gone, closing }: Pick<McpContext, 'changes' | 'gone' | 'closing'>,
): AsyncGenerator<string, void, undefined> {
  const waiting: string[] = []
  let wake = () => {}
  const stop = changes.listen((change) => {
    const message = session && toMessage(change, session)
    if (message !== undefined && waiting.push(message) > maxWaiting) waiting.shift()
    wake()
  })
  const ended = AbortSignal.any([gone(), closing])
  ended.addEventListener('abort', () => wake(), { once: true })
  try {
    while (!ended.aborted) {
      const message = waiting.shift()
      if (message !== undefined) yield message
      else {
        await new Promise<void>((resolve) => {
          wake = resolve
          if (ended.aborted) resolve()
        })
      }
    }
  } finally {
    stop()
  }
}

function toMessage(change: Change, { subscriptions }: Session): string | undefined {
  switch (change.kind) {
    case 'tools':
    case 'prompts':
    case 'resources':
      return notificationText(`notifications/${change.kind}/list_changed`, {})
    case 'resource':
      return subscriptions.has(change.uri)
        ? notificationText('notifications/resources/updated', { uri: change.uri })
        : undefined
    case 'task':
      return undefined
  }
}
