import Type, { type Static } from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { uploadMaxBytes } from '../../core/storage/signed-links.ts'
import { bytesInWords } from '../execute/ending-words.ts'
import { type ToolResult, tool } from '../tool.ts'
import { blobUrl } from './blob-url.ts'
import { inlineMaxBytes } from './file-content.ts'
import { fileArguments, toFinding } from './files-download.ts'

const Input = Type.Object(
  {
    ...fileArguments,
    content: Type.Optional(
      Type.String({
        description: `The whole file, at most ${bytesInWords(inlineMaxBytes)}. Leave it out for larger ones.`,
      }),
    ),
    encoding: Type.Optional(
      Type.Unsafe<'text' | 'base64'>({
        type: 'string',
        enum: ['text', 'base64'],
        description: 'Of content; text by default.',
      }),
    ),
    size: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: uploadMaxBytes,
        description: 'Without content: the exact length of the file in bytes. A link to upload it is returned.',
      }),
    ),
  },
  { additionalProperties: false },
)

const Output = Type.Object({
  path: Type.String(),
  size: Type.Integer({ minimum: 0 }),
  url: Type.Optional(Type.String({ description: 'Where to PUT the bytes; good once.' })),
  command: Type.Optional(Type.String({ description: 'That uploads the file, run where the file is.' })),
  expires_at: Type.Optional(Type.String()),
})

export const filesUpload = tool({
  name: 'files_upload',
  title: 'Upload a file',
  toolset: 'files',
  capabilities: ['files.write'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true },
  offered: ({ storage, volumes }) => storage.kind !== 'none' || volumes.length > 0,
  describe: () =>
    `Write a file to a thread or volume, in place of an earlier one; missing directories are made. Give a small file as content (at most ${bytesInWords(inlineMaxBytes)}). For a larger one give its size instead: the answer is a link, good for one upload, and the command line that uploads the file to it from where it is, so that its bytes never pass through you.`,
  input: Input,
  narrow: (input) => input,
  output: Output,
  run: async (caller, { content, encoding = 'text', size, ...file }, { core, baseUrl }) => {
    if (content === undefined) {
      if (size === undefined) throw invalid('content', 'is missing: give content, or size for a link')
      await core.files.requireWritable(caller, file)
      return linkResult(
        file.path,
        size,
        baseUrl,
        await core.links.signUpload(caller, { ...file, sizeBytes: size, once: true }),
      )
    }
    const bytes = toBytes(content, encoding)
    if (size !== undefined && size !== bytes.length)
      throw invalid('size', `is ${size}, but content is ${bytes.length} bytes`)
    try {
      return written(file.path, await core.files.write(caller, file, [bytes]))
    } catch (error) {
      return toFinding(error)
    }
  },
})

function toBytes(content: string, encoding: 'text' | 'base64'): Buffer {
  if (encoding === 'text' && !content.isWellFormed()) {
    throw invalid('content', 'holds a lone surrogate, which is not valid Unicode')
  }
  if (encoding === 'base64' && !/^[A-Za-z0-9+/]*={0,2}$/.test(content)) throw invalid('content', 'is not base64')
  const bytes = Buffer.from(content, encoding === 'text' ? 'utf8' : 'base64')
  if (bytes.length > inlineMaxBytes) {
    throw invalid(
      'content',
      `is ${bytes.length} bytes, more than ${inlineMaxBytes}: leave it out and give size for a link`,
    )
  }
  return bytes
}

const answer = (text: string, structuredContent: Static<typeof Output>): ToolResult => ({
  content: [{ type: 'text', text }],
  structuredContent,
  isError: false,
})

const written = (path: string, size: number): ToolResult => answer(`Wrote ${path}, ${size} bytes.`, { path, size })

function linkResult(
  path: string,
  size: number,
  baseUrl: string,
  { token, expiresAt }: { token: string; expiresAt: string },
): ToolResult {
  const url = blobUrl(baseUrl, token)
  const command = `curl -fsS -T FILE '${url}'`
  const text = `Upload the file, exactly ${size} bytes, with this command, FILE being its path where it is now:\n\n${command}\n\nThe link can be used for one upload until ${expiresAt}.`
  return answer(text, { path, size, url, command, expires_at: expiresAt })
}

const invalid = (field: string, problem: string): Refusal => new Refusal('invalid_argument', { field, problem })
