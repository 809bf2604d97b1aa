/** As MCP's resource templates are written (RFC 6570): what `fileUri` gives matches it. */
export const fileUriTemplate = 'glovebox://threads/{thread_id}/files/{+path}'

/**
 * Identifies a file of a thread in MCP: results link to it, and `resources/read` reads it.
 * @param path relative to the thread's home directory, in any Unicode.
 */
export const fileUri = (threadId: string, path: string): string =>
  `glovebox://threads/${encodeURIComponent(threadId)}/files/${path.split('/').map(encodeURIComponent).join('/')}`

/** Parses what `fileUri` returns. @returns undefined for any other URI. The path is not checked. */
export function readFileUri(uri: string): { threadId: string; path: string } | undefined {
  const [, threadId, path] = /^glovebox:\/\/threads\/([^/?#]+)\/files\/([^?#]+)$/.exec(uri) ?? []
  if (threadId === undefined || path === undefined) return undefined
  try {
    return { threadId: decodeURIComponent(threadId), path: path.split('/').map(decodeURIComponent).join('/') }
  } catch {
    return undefined // An invalid percent-encoding.
  }
}
