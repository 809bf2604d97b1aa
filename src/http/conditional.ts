import type { IncomingHttpHeaders } from 'node:http'
import fresh from 'fresh'

/**
 * Returns whether If-None-Match names the ETag: RFC 9110, section 13.1.2. Other headers do not count: a program can
 * write a file twice within the second that If-Modified-Since resolves, and `fetch` adds `Cache-Control: no-cache` to
 * every request with If-None-Match.
 */
export const isUnchanged = ({ 'if-none-match': tags }: IncomingHttpHeaders, etag: string): boolean =>
  fresh({ 'if-none-match': tags }, { etag })
