import type { Change } from '../change-feed.ts'
import { openChangeStream } from '../change-stream.ts'
import type { McpContext } from '../handle.ts'
import { encodeNotification } from '../json-rpc/encode.ts'
import type { Session } from './sessions.ts'

/**
 * The messages of a stream that a client opened with GET: notifications of changes if it has a session, otherwise none.
 * Some clients require the stream even so.
 */
export async function* notificationStream(
  session: Session | undefined,
  context: Pick<McpContext, 'changes' | 'disconnected' | 'closing'>,
): AsyncGenerator<string, void, undefined> {
  const stream = openChangeStream(context, (change) => session && toNotification(change, session))
  try {
    yield* stream.items
  } finally {
    stream.close()
  }
}

function toNotification(change: Change, { subscriptions }: Session): string | undefined {
  switch (change.kind) {
    case 'tools':
    case 'prompts':
    case 'resources':
      return encodeNotification(`notifications/${change.kind}/list_changed`, {})
    case 'resource':
      return subscriptions.has(change.uri)
        ? encodeNotification('notifications/resources/updated', { uri: change.uri })
        : undefined
    case 'task':
      return undefined
  }
}
