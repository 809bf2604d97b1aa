import Type from 'typebox'
import { Refusal, type RefusalCode } from '../../base/errors.ts'
import type { Caller } from '../../core/caller.ts'
import type { FileRequest, OpenFile } from '../../core/storage/files.ts'
import { bytesInWords } from '../execute/ending-words.ts'
import { type ToolContext, type ToolResult, tool } from '../tool.ts'
import { blobUrl } from './blob-url.ts'
import { inlineMaxBytes, toContent } from './file-content.ts'

/** The arguments that name a file. */
export const fileArguments = {
  source: Type.Unsafe<'thread' | 'volume'>({
    type: 'string',
    enum: ['thread', 'volume'],
    description: 'Where the file is.',
  }),
  id: Type.String({ description: 'The thread_id or volume name.' }),
  path: Type.String({ description: 'File path relative to the storage root.' }),
}

export const filesDownload = tool({
  name: 'files_download',
  title: 'Download a file',
  toolset: 'files',
  capabilities: ['files.read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  offered: ({ storage, volumes }) => storage.kind !== 'none' || volumes.length > 0,
  describe: () =>
    `Download file content from a thread or volume. Text is returned as text, PNG, JPEG, GIF and WebP as an image, WAV, MP3, Ogg and FLAC as audio; at most ${bytesInWords(inlineMaxBytes)}. For anything else a link is returned.`,
  input: Type.Object(fileArguments, { additionalProperties: false }),
  narrow: (input) => input,
  run: async (caller, request, context) => {
    let file: OpenFile
    try {
      file = await context.core.files.open(caller, request)
    } catch (error) {
      return toFinding(error)
    }
    const { path } = request
    if (file.lengthBytes > inlineMaxBytes) {
      file.stop()
      const limit = bytesInWords(inlineMaxBytes)
      return elsewhere(
        caller,
        request,
        context,
        `${path} is ${file.lengthBytes} bytes, more than the ${limit} that are returned here.`,
      )
    }
    const bytes = await readAll(file)
    const content = toContent(bytes)
    if (content) return { content: [content], isError: false }
    const problem = `${path} is a binary file of ${bytes.length} bytes: neither text nor an image or sound that can be shown.`
    return elsewhere(caller, request, context, problem)
  },
})

/** What a model finds out by looking is a result, so that it looks again; what can never be is refused. */
const findings: readonly RefusalCode[] = [
  'thread_unknown',
  'thread_busy',
  'thread_exists',
  'path_not_found',
  'not_a_file',
  'not_a_directory',
  'file_busy',
  'storage_full',
]

/** Converts an expected refusal to a result. @throws any other error. */
export function toFinding(error: unknown): ToolResult {
  if (error instanceof Refusal && findings.includes(error.code)) return failure(`${error.message} ${error.hint}`)
  throw error
}

export const failure = (text: string): ToolResult => ({ content: [{ type: 'text', text }], isError: true })

/** Says why it is not in the answer, and gives a link to it. */
async function elsewhere(
  caller: Caller,
  request: FileRequest,
  { core, baseUrl }: ToolContext,
  problem: string,
): Promise<ToolResult> {
  const { token, expiresAt } = await core.links.signDownload(caller, request)
  const text = `${problem} Fetch it from the link below, which is good until ${expiresAt} and needs no key, or with the REST Files API: POST /v1/files/download.`
  const name = request.path.split('/').at(-1) ?? request.path
  return {
    content: [
      { type: 'text', text },
      { type: 'resource_link', uri: blobUrl(baseUrl, token), name, mimeType: 'application/octet-stream' },
    ],
    isError: false,
  }
}

export async function readAll(file: OpenFile): Promise<Buffer> {
  const pieces: Uint8Array[] = []
  for await (const piece of file.bytes) pieces.push(piece)
  return Buffer.concat(pieces)
}
