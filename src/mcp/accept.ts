import type { HeaderOf } from './handle.ts'

/** Returns whether a client accepts server-sent events: RFC 9110, section 12.5.1. A weight of 0 excludes them. */
export const readsEvents = (header: HeaderOf): boolean =>
  (header('accept') ?? '').split(',').some((range) => {
    const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase())
    return type === 'text/event-stream' && !parameters.some((parameter) => /^q=0(?:\.0{0,3})?$/.test(parameter))
  })

/** Returns whether a client accepts server-sent events and no plain JSON, as some do although the specification requires both. */
export const readsOnlyEvents = (header: HeaderOf): boolean => {
  const accept = header('accept')
  return accept !== undefined && !/[*]|json/i.test(accept) && readsEvents(header)
}
