import { AsyncQueue } from '../base/async-queue.ts'
import type { Change } from './change-feed.ts'
import type { McpContext } from './handle.ts'

/** Notifications that wait for a slow client; beyond that it loses the oldest. */
const maxWaiting = 256

/** The changes that one open stream of a client reports. `close` must be called when the stream ends. */
export interface ChangeStream<Item> {
  items: AsyncIterable<Item>
  close(): void
}

/**
 * Subscribes a stream of a client to changes. It ends when the client disconnects or the process shuts down. Both eras
 * open their streams here.
 * @param select returns what the stream reports of a change; `undefined` leaves the change out.
 */
export function openChangeStream<Item>(
  { changes, disconnected, closing }: Pick<McpContext, 'changes' | 'disconnected' | 'closing'>,
  select: (change: Change) => Item | undefined,
): ChangeStream<Item> {
  const queue = new AsyncQueue<Item>({ capacity: maxWaiting, overflow: 'drop_oldest' })
  const unsubscribe = changes.subscribe((change) => {
    const item = select(change)
    if (item !== undefined) queue.push(item)
  })
  const end = AbortSignal.any([disconnected(), closing])
  const discard = () => queue.discard()
  if (end.aborted) discard()
  else end.addEventListener('abort', discard, { once: true })
  return { items: queue, close: unsubscribe }
}
