import Type from 'typebox'
import type { FileEntry } from '../../core/storage/files.ts'
import { tool } from '../tool.ts'
import { fileArguments, toFinding } from './files-download.ts'

/** A page that a model can read; REST lists up to 1000 entries. */
const entriesMax = 200

export const filesList = tool({
  name: 'files_list',
  title: 'List files',
  toolset: 'files',
  capabilities: ['files.read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  offered: ({ storage, volumes }) => storage.kind !== 'none' || volumes.length > 0,
  describe: () => `List a directory of a thread or volume, at most ${entriesMax} entries at a time.`,
  input: Type.Object(
    {
      source: fileArguments.source,
      id: fileArguments.id,
      path: Type.Optional(Type.String({ description: 'A directory; the storage root by default.' })),
      cursor: Type.Optional(
        Type.String({ maxLength: 64, description: 'From an earlier result, for the next entries.' }),
      ),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, { source, id, path = '', cursor }, { core }) => {
    const page = { limit: entriesMax, ...(cursor !== undefined && cursor !== '' && { cursor }) }
    try {
      const { entries, nextCursor } = await core.files.list(caller, { source, id, path }, page)
      const lines = entries.map(inWords)
      if (lines.length === 0) lines.push('The directory is empty.')
      if (nextCursor !== null) lines.push(`There are more entries: call again with cursor "${nextCursor}".`)
      return { content: [{ type: 'text', text: lines.join('\n') }], isError: false }
    } catch (error) {
      return toFinding(error)
    }
  },
})

const inWords = ({ name, isDirectory, sizeBytes, modifiedMs }: FileEntry): string =>
  `${isDirectory ? `${name}/` : `${name} (${sizeBytes} bytes)`} ${new Date(modifiedMs).toISOString()}`
