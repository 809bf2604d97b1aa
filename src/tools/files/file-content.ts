import { detectMediaType } from '../../base/media-type.ts'
import type { Content, ResourceContents } from '../content.ts'

/** Maximum size of a file in a result or in arguments, in bytes. */
export const inlineMaxBytes = 1024 * 1024

/**
 * Converts a file to content of a result; `undefined` if clients cannot display it. The media type is detected from the
 * bytes, because names are chosen by programs in the sandbox.
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
