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

/** How many of the first bytes `mediaTypeOf` and `contentOf` look at. */
export const lookedAtBytes = 4096

/** The image or audio that begins like this; `undefined` where it is none. */
const mediaTypeOf = (bytes: Buffer): string | undefined => table.find(({ begins }) => begins(bytes))?.mimeType

/** What a file holds that begins with these bytes. SVG is text. @param isWhole whether they are all of it. */
export function contentOf(bytes: Buffer, isWhole: boolean): { kind: FileKind; mimeType: string } {
  const media = mediaTypeOf(bytes)
  if (media !== undefined) return { kind: media.startsWith('image/') ? 'image' : 'audio', mimeType: media }
  // A NUL is valid UTF-8 and in no text.
  const isText = !bytes.includes(0) && isUtf8(isWhole ? bytes : withoutCutCharacter(bytes))
  return isText ? { kind: 'text', mimeType: 'text/plain' } : { kind: 'binary', mimeType: 'application/octet-stream' }
}

/** Without the beginning of a character of UTF-8 that has its end elsewhere. */
function withoutCutCharacter(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!
    if ((byte & 0xc0) === 0x80) continue
    const characterBytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return characterBytes > back ? bytes.subarray(0, -back) : bytes
  }
  return bytes
}
