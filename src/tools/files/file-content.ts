import { isUtf8 } from 'node:buffer'
import type { Content, ResourceContents } from '../content.ts'

/** Largest file that travels inside an answer or a call. */
export const inlineMaxBytes = 1024 * 1024

/** What a file holds, by its bytes: names say little, and any program may have written them. SVG is text. */
export type FileContent =
  | { kind: 'text'; text: string }
  | { kind: 'image' | 'audio'; mimeType: string }
  | { kind: 'binary' }

export function contentOf(bytes: Buffer): FileContent {
  const known = signatures.find(({ begins }) => begins(bytes))
  if (known) return { kind: known.kind, mimeType: known.mimeType }
  // As a whole, so that no character is cut; a NUL is valid UTF-8 and in no text.
  if (isUtf8(bytes) && !bytes.includes(0)) return { kind: 'text', text: bytes.toString('utf8') }
  return { kind: 'binary' }
}

/** As content of an answer; nothing where no client could show it. */
export function toContent(bytes: Buffer): Content | undefined {
  const content = contentOf(bytes)
  switch (content.kind) {
    case 'text':
      return { type: 'text', text: content.text }
    case 'image':
    case 'audio':
      return { type: content.kind, data: bytes.toString('base64'), mimeType: content.mimeType }
    case 'binary':
      return undefined
  }
}

/** As a resource, which holds anything. */
export function toResource(uri: string, bytes: Buffer): ResourceContents {
  const content = contentOf(bytes)
  if (content.kind === 'text') return { uri, mimeType: 'text/plain', text: content.text }
  const mimeType = content.kind === 'binary' ? 'application/octet-stream' : content.mimeType
  return { uri, mimeType, blob: bytes.toString('base64') }
}

const at = (offset: number, text: string) => (bytes: Buffer) =>
  bytes.subarray(offset, offset + text.length).equals(Buffer.from(text, 'latin1'))

/** https://mimesniff.spec.whatwg.org/#matching-an-image-type-pattern and the section on audio after it. */
const signatures: readonly { kind: 'image' | 'audio'; mimeType: string; begins: (bytes: Buffer) => boolean }[] = [
  { kind: 'image', mimeType: 'image/png', begins: at(0, '\x89PNG\r\n\x1a\n') },
  { kind: 'image', mimeType: 'image/jpeg', begins: at(0, '\xff\xd8\xff') },
  { kind: 'image', mimeType: 'image/gif', begins: (bytes) => at(0, 'GIF87a')(bytes) || at(0, 'GIF89a')(bytes) },
  { kind: 'image', mimeType: 'image/webp', begins: (bytes) => at(0, 'RIFF')(bytes) && at(8, 'WEBPVP')(bytes) },
  { kind: 'audio', mimeType: 'audio/wav', begins: (bytes) => at(0, 'RIFF')(bytes) && at(8, 'WAVE')(bytes) },
  { kind: 'audio', mimeType: 'audio/mpeg', begins: at(0, 'ID3') },
  { kind: 'audio', mimeType: 'audio/ogg', begins: at(0, 'OggS\0') },
  { kind: 'audio', mimeType: 'audio/flac', begins: at(0, 'fLaC') },
]
