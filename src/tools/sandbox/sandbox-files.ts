import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { SandboxFile } from '../../base/sandbox.ts'
import type { Caller } from '../../core/caller.ts'
import type { OpenSandboxFile } from '../../core/sandboxes/files.ts'
import { tool } from '../tool.ts'
import { target, textResult, toRef } from './arguments.ts'
import { shortened } from './sandbox-run-command.ts'

const readActions = ['list', 'read', 'stat'] as const
const writeActions = ['write', 'append', 'mkdir', 'move', 'copy', 'delete'] as const
const pathArgument = Type.String({ description: 'Absolute path, or relative to the working directory.' })
/** Part of a file that one call reads. */
const readMaxBytes = 256 * 1024

export const sandboxFilesRead = tool({
  name: 'sandbox_files_read',
  title: 'Read files of a sandbox',
  toolset: 'sandbox',
  capabilities: ['sandboxes.files.read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  describe: () =>
    `Read files of a sandbox, running or stopped. Actions: list shows a directory; read returns the text of a file, at most ${readMaxBytes} bytes from offset; stat shows size, mode and owner.`,
  input: Type.Object(
    {
      ...target,
      action: Type.Unsafe<(typeof readActions)[number]>({ type: 'string', enum: [...readActions] }),
      path: pathArgument,
      offset: Type.Optional(Type.Integer({ minimum: 0, description: 'For read: first byte.' })),
      cursor: Type.Optional(Type.String({ description: 'For list: from an earlier result.' })),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, given, { core }) => {
    const ref = toRef(given)
    const { action, path, offset = 0, cursor } = given
    switch (action) {
      case 'list': {
        const { entries, cursor: next } = await core.sandboxFiles.list(
          caller,
          ref,
          { path },
          { cursor: cursor || undefined },
        )
        const lines = entries.map(describeFile)
        if (next !== undefined) lines.push(`There are more entries: call again with cursor "${next}".`)
        return textResult(lines.join('\n') || 'The directory is empty.')
      }
      case 'stat':
        return textResult(describeFile(await core.sandboxFiles.stat(caller, ref, { path })))
      case 'read':
        return textResult(
          await readText(caller, await core.sandboxFiles.read(caller, ref, { path }, partAt(offset)), offset),
        )
    }
  },
})

const partAt = (offset: number) => ({ offset, lengthBytes: readMaxBytes })

/** Returns the text of a part of a file, and where the rest begins. */
async function readText(caller: Caller, { status, bytes }: OpenSandboxFile, offset: number): Promise<string> {
  const pieces: Uint8Array[] = []
  for await (const piece of bytes) pieces.push(piece)
  const part = Buffer.concat(pieces)
  // A character that the end of the part cuts in two belongs to the next part.
  const whole = offset + part.length < status.sizeBytes ? wholeCharacters(part) : part
  const text = shortened(whole.toString('utf8'), caller.profile.calls.mcpOutputCharacters)
  const end = offset + whole.length
  if (end >= status.sizeBytes) return text
  return `${text}\n… ${status.sizeBytes - end} more bytes; continue with offset ${end}.`
}

/** Returns the part of the bytes that ends with a whole UTF-8 character. */
function wholeCharacters(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!
    if ((byte & 0xc0) === 0x80) continue
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return length > back ? bytes.subarray(0, bytes.length - back) : bytes
  }
  return bytes
}

export const sandboxFilesWrite = tool({
  name: 'sandbox_files_write',
  title: 'Write files of a sandbox',
  toolset: 'sandbox',
  capabilities: ['sandboxes.files.write'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
  describe: () =>
    'Change files of a sandbox, running or stopped. Actions: write replaces a file with content and creates missing directories; append adds to it; mkdir creates a directory; move and copy take path and to; delete removes a file, or a directory with recursive.',
  input: Type.Object(
    {
      ...target,
      action: Type.Unsafe<(typeof writeActions)[number]>({ type: 'string', enum: [...writeActions] }),
      path: pathArgument,
      content: Type.Optional(Type.String({ description: 'For write and append: text.' })),
      mode: Type.Optional(
        Type.String({
          pattern: '^[0-7]{3,4}$',
          description: 'For write, append and mkdir: permission bits of a new one, for example 755.',
        }),
      ),
      to: Type.Optional(Type.String({ description: 'For move and copy.' })),
      replace: Type.Optional(Type.Boolean({ description: 'For move and copy: replace what is at to.' })),
      recursive: Type.Optional(Type.Boolean({ description: 'For delete.' })),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, given, { core }) => {
    const ref = toRef(given)
    const { action, path, content = '', mode, to, replace = false, recursive = false } = given
    const { sandboxFiles: files } = core
    const at = { path }
    switch (action) {
      case 'write':
      case 'append': {
        const how = { append: action === 'append', makeParents: true, mode: toMode(mode) }
        const bytes = await files.write(caller, ref, at, [Buffer.from(content)], how)
        return textResult(`Wrote ${bytes} bytes to ${path}.`)
      }
      case 'mkdir':
        await files.makeDirectory(caller, ref, at, { parents: true, mode: toMode(mode) })
        return textResult(`Created ${path}.`)
      case 'move':
      case 'copy': {
        if (to === undefined)
          throw new Refusal('invalid_argument', { field: 'to', problem: 'is required for this action' })
        await files[action](caller, ref, at, to, replace)
        return textResult(`${action === 'move' ? 'Moved' : 'Copied'} ${path} to ${to}.`)
      }
      case 'delete':
        await files.remove(caller, ref, at, recursive)
        return textResult(`Deleted ${path}.`)
    }
  },
})

const describeFile = ({ name, kind, sizeBytes, mode, target: to }: SandboxFile): string =>
  `${name}${kind === 'directory' ? '/' : ''} ${kind}, ${sizeBytes} bytes, mode 0${mode.toString(8)}${to === undefined ? '' : ` -> ${to}`}`

const toMode = (mode: string | undefined): number | undefined =>
  mode === undefined ? undefined : Number.parseInt(mode, 8)
