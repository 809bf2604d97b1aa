import type { HeaderOf } from './handle.ts'

/** Returns whether a client accepts server-sent events. */
export const readsEvents = (header: HeaderOf): boolean =>
  (header('accept') ?? '').toLowerCase().includes('text/event-stream')
