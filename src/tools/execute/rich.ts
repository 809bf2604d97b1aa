import type { ChangedFile, RunResult, ShownImage } from '../../base/run.ts'
import type { Content } from '../content.ts'
import { fileUri } from '../files/file-uri.ts'

/** Limit on links to changed files; the fields for programs list every file. */
const linksMax = 20

/** Returns the content items besides text: images, then links to changed files. */
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

/** Returns notes about what the content items leave out. */
export function richNotes({ files, images }: RunResult): string[] {
  const beyond = Math.max((files?.changed.length ?? 0) - linksMax, 0)
  const notes: string[] = []
  if (beyond > 0) notes.push(`**Note:** ${beyond} more files were changed; list the directory to see them`)
  if (files?.truncated) notes.push('**Note:** the list of changed files may be incomplete')
  if (images && images.dropped > 0)
    notes.push(`**Note:** ${images.dropped} images were dropped because they were too many or too large`)
  if (images?.ignored) notes.push('**Note:** invalid image data was ignored, and so were all images after it')
  return notes
}

/** Returns the structured content about files and images. */
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
