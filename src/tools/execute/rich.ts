import type { ChangedFile, RunResult } from '../../base/run.ts'
import type { Content } from '../content.ts'
import { fileUri } from '../files/file-uri.ts'

/** Of the files that a run changed, so many are linked to; the fields have all of them. */
const linksMax = 20

/** What a run made beside its text, as items of the answer. */
export function richContent({ result: { files } }: { result: RunResult }): Content[] {
  return (files?.changed ?? []).slice(0, linksMax).map((file) => ({
    type: 'resource_link',
    uri: fileUri(files?.threadId ?? '', file.path),
    name: file.path,
    mimeType: file.mimeType,
    description: inWords(file),
  }))
}

const inWords = ({ kind, sizeBytes }: ChangedFile): string => `${kind} file, ${sizeBytes} bytes`

/** What the items do not say by themselves. */
export function richNotes({ files }: RunResult): string[] {
  const beyond = Math.max((files?.changed.length ?? 0) - linksMax, 0)
  const notes: string[] = []
  if (beyond > 0) notes.push(`**Note:** ${beyond} more files have changed than are linked to here`)
  if (files?.truncated) notes.push('**Note:** more files may have changed than are told of')
  return notes
}

/** The same for a program. */
export const richFields = ({ files }: RunResult): Record<string, unknown> => ({
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
})
