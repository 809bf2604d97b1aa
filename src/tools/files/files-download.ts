import { isUtf8 } from 'node:buffer'
import Type from 'typebox'
import { Refusal, type RefusalCode } from '../../base/errors.ts'
import { mediaTypeOf } from '../../base/media-type.ts'
import type { OpenFile } from '../../core/files.ts'
import { bytesInWords } from '../execute/ending-words.ts'
import { type ToolResult, tool } from '../tool.ts'

const inlineMaxBytes = 1024 * 1024

export const filesDownload = tool({
  name: 'files_download',
  title: 'Download a file',
  toolset: 'files',
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  offered: ({ storage }) => storage.kind !== 'none',
  describe: () =>
    `Download file content from a thread or volume. Text is returned as text, PNG, JPEG, GIF and WebP as an image; at most ${bytesInWords(inlineMaxBytes)}.`,
  input: Type.Object(
    {
      source: Type.Unsafe<'thread' | 'volume'>({
        type: 'string',
        enum: ['thread', 'volume'],
        description: 'Where to read the file from.',
      }),
      id: Type.String({ description: 'The thread_id or volume name.' }),
      path: Type.String({ description: 'File path relative to the storage root.' }),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, { source, id, path }, { core }) => {
    let file: OpenFile
    try {
      file = await core.openFile(caller, { source, id, path })
    } catch (error) {
      return toResult(error)
    }
    if (file.lengthBytes > inlineMaxBytes) {
      file.stop()
      return failure(
        `${path} is ${file.lengthBytes} bytes, more than the ${bytesInWords(inlineMaxBytes)} that are returned here. ${elsewhere}`,
      )
    }
    return contentOf(path, await readAll(file))
  },
})

/** What a model finds out by looking is a result, so that it looks again; what can never be is refused. */
const findings: readonly RefusalCode[] = [
  'thread_unknown',
  'path_not_found',
  'not_a_file',
  'not_a_directory',
  'file_busy',
]

function toResult(error: unknown): ToolResult {
  if (error instanceof Refusal && findings.includes(error.code)) return failure(`${error.message} ${error.hint}`)
  throw error
}

/** Of what does not fit into an answer. */
const elsewhere =
  'That is for the REST Files API (POST /v1/files/download), which this version does not serve yet; until it does, let code in the thread split the file or print it as base64.'

const failure = (text: string): ToolResult => ({ content: [{ type: 'text', text }], isError: true })

async function readAll(file: OpenFile): Promise<Buffer> {
  const pieces: Uint8Array[] = []
  for await (const piece of file.bytes) pieces.push(piece)
  return Buffer.concat(pieces)
}

/** By what the file holds: names say little, and any program may have written them. SVG is text. */
function contentOf(path: string, bytes: Buffer): ToolResult {
  const mimeType = mediaTypeOf(bytes)
  if (mimeType?.startsWith('image/')) {
    return { content: [{ type: 'image', data: bytes.toString('base64'), mimeType }], isError: false }
  }
  // As a whole, so that no character is cut; a NUL is valid UTF-8 and in no text.
  if (isUtf8(bytes) && !bytes.includes(0)) {
    return { content: [{ type: 'text', text: bytes.toString('utf8') }], isError: false }
  }
  return failure(
    `${path} is a binary file of ${bytes.length} bytes: neither text nor an image that can be shown. ${elsewhere}`,
  )
}
