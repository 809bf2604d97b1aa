import type { ChangedFile, RunResult, ShownImage } from '../../base/run.ts'
import type { Content } from '../content.ts'
import { fileUri } from '../files/file-uri.ts'

/** Of the files that a run changed, so many are linked to; the fields have all of them. */
const linksMax = 20

/** What a run made beside its text, as items of the answer: images, then links to files. */
export function richContent({ files }: RunResult, images: readonly ShownImage[]): Content[] {
  const links = (files?.changed ?? []).slice(0, linksMax).map((file) => ({
    type: 'resource_link' as const,
    uri: fileUri(files?.threadId ?? '', file.path),
    name: file.path,
    mimeType: file.mimeType,
    description: inWords(file),
  }))
  const shown = images.map(({ mimeType, bytes }) => ({ type: 'image' as const, data: inBase64(bytes), mimeType }))
  return [...shown, ...links]
}

export const inBase64 = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64')

const inWords = ({ kind, sizeBytes }: ChangedFile): string => `${kind} file, ${sizeBytes} bytes`

/** What the items do not say by themselves. */
export function richNotes({ files, images }: RunResult): string[] {
  const beyond = Math.max((files?.changed.length ?? 0) - linksMax, 0)
  const notes: string[] = []
  if (beyond > 0) notes.push(`**Note:** ${beyond} more files have changed than are linked to here`)
  if (files?.truncated) notes.push('**Note:** more files may have changed than are told of')
  if (images && images.dropped > 0)
    notes.push(`**Note:** ${images.dropped} images were too many or too large to be told`)
  if (images?.ignored) notes.push('**Note:** something was shown as an image that is none; nothing after it is told')
  return notes
}

/** The same for a program. */
export const richFields = ({ files, images }: RunResult): Record<string, unknown> => ({
  ...(files && {
    files: files.changed.map(({ path, sizeBytes, sha256, kind, mimeType }) => ({
      path,
      size_bytes: sizeBytes,
      sha256,
      kind,
      mime_type: mimeType,
    })),
    files_truncated: files.truncated,
  }),
  ...(images && { images_shown: images.shown, images_dropped: images.dropped, images_ignored: images.ignored }),
})
