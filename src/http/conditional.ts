import type { IncomingHttpHeaders } from 'node:http'
import fresh from 'fresh'

/**
 * Returns whether the client has this version already: If-None-Match with a list of ETags, or If-Modified-Since without
 * it: RFC 9110, section 13.2.2. `Cache-Control` does not count: `fetch` adds `no-cache` to every such request.
 * @param lastModified the value of Last-Modified, if it is sent.
 */
export const isUnchanged = (
  { 'if-none-match': tags, 'if-modified-since': since }: IncomingHttpHeaders,
  etag: string,
  lastModified?: string,
): boolean => fresh({ 'if-none-match': tags, 'if-modified-since': since }, { etag, 'last-modified': lastModified })
