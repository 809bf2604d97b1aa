import { detectMediaType } from '../../base/media-type.ts'
import type { Content, ResourceContents } from '../content.ts'

/** Largest file that travels inside an answer or a call. */
export const inlineMaxBytes = 1024 * 1024

/**
 * As content of an answer; nothing where no client could show it. What a file holds is told by its bytes: names say
 * little, and any program may have written them.
 */
export function toContent(bytes: Buffer): Content | undefined {
  const { kind, mimeType } = detectMediaType(bytes, true)
  switch (kind) {
    case 'text':
      return { type: 'text', text: bytes.toString('utf8') }
    case 'image':
    case 'audio':
      return { type: kind, data: bytes.toString('base64'), mimeType }
    case 'binary':
      return undefined
  }
}

/** As a resource, which holds anything. */
export function toResource(uri: string, bytes: Buffer): ResourceContents {
  const { kind, mimeType } = detectMediaType(bytes, true)
  return kind === 'text'
    ? { uri, mimeType, text: bytes.toString('utf8') }
    : { uri, mimeType, blob: bytes.toString('base64') }
}
