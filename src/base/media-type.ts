import { isUtf8 } from 'node:buffer'
import type { FileKind } from './run.ts'

const at = (offset: number, text: string) => (bytes: Buffer) =>
  bytes.subarray(offset, offset + text.length).equals(Buffer.from(text, 'latin1'))

const riff = (of: string) => (bytes: Buffer) => at(0, 'RIFF')(bytes) && at(8, of)(bytes)

/** https://mimesniff.spec.whatwg.org/#matching-an-image-type-pattern, and the section on audio after it. */
const table: readonly { mimeType: string; begins: (bytes: Buffer) => boolean }[] = [
  { mimeType: 'image/png', begins: at(0, '\x89PNG\r\n\x1a\n') },
  { mimeType: 'image/jpeg', begins: at(0, '\xff\xd8\xff') },
  { mimeType: 'image/gif', begins: (bytes) => at(0, 'GIF87a')(bytes) || at(0, 'GIF89a')(bytes) },
  { mimeType: 'image/webp', begins: riff('WEBPVP') },
  { mimeType: 'audio/wav', begins: riff('WAVE') },
  { mimeType: 'audio/mpeg', begins: at(0, 'ID3') },
  { mimeType: 'audio/ogg', begins: at(0, 'OggS\0') },
  { mimeType: 'audio/flac', begins: at(0, 'fLaC') },
]

/** Number of leading bytes that `detectMediaType` needs. */
export const detectionBytes = 4096

/** Returns the image or audio type with this signature, if any. */
const signatureOf = (bytes: Buffer): string | undefined => table.find(({ begins }) => begins(bytes))?.mimeType

/**
 * Detects the kind and the media type of a file from its leading bytes. SVG is text.
 * @param isWhole whether the bytes are the complete file.
 */
export function detectMediaType(bytes: Buffer, isWhole: boolean): { kind: FileKind; mimeType: string } {
  const media = signatureOf(bytes)
  if (media !== undefined) return { kind: media.startsWith('image/') ? 'image' : 'audio', mimeType: media }
  // NUL is valid UTF-8, but text files do not contain it.
  const isText = !bytes.includes(0) && isUtf8(isWhole ? bytes : withoutPartialCharacter(bytes))
  return isText ? { kind: 'text', mimeType: 'text/plain' } : { kind: 'binary', mimeType: 'application/octet-stream' }
}

/** Removes an incomplete UTF-8 character at the end. */
function withoutPartialCharacter(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!
    if ((byte & 0xc0) === 0x80) continue
    const characterBytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return characterBytes > back ? bytes.subarray(0, -back) : bytes
  }
  return bytes
}
