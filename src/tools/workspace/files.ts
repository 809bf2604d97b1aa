import Type from 'typebox'
import { Finding, findingLines, workspaceTool } from './workspace-tool.ts'

const filePath = Type.String({
  minLength: 1,
  maxLength: 4096,
  description: 'Path in the workspace, relative or absolute.',
})

export const readTool = workspaceTool({
  name: 'Read',
  title: 'Read a file',
  readOnly: true,
  description:
    'Read a file of the workspace. Lines are returned with their numbers, which are not part of the file. Images are shown, notebooks are returned as cells. A file must be read before it can be changed.',
  input: {
    file_path: filePath,
    offset: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000_000, description: 'First line. Default: 1.' })),
    limit: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 100_000, description: 'Number of lines. Default: 2000.' }),
    ),
  },
  aliases: { offset: atLeastOne },
  reply: Type.Object({
    text: Type.Optional(Type.String()),
    image: Type.Optional(Type.String()),
    mime: Type.Optional(Type.Enum(['image/png', 'image/jpeg', 'image/gif', 'image/webp'])),
  }),
  call: (input) => ({ op: 'read', args: input }),
  show: ({ text = '', image, mime }) => ({
    text,
    ...(image !== undefined && mime !== undefined && { image: { data: image, mimeType: mime } }),
  }),
})

/** Models number lines from 0 as well. */
function atLeastOne(value: unknown): unknown {
  return value === 0 ? 1 : value
}

const changed = {
  path: Type.String(),
  findings: Type.Union([Type.Null(), Type.Array(Finding)]),
}

export const writeTool = workspaceTool({
  name: 'Write',
  title: 'Write a file',
  readOnly: false,
  idempotent: true,
  description:
    'Write a whole file of the workspace in one step, and create missing directories. An existing file must have been read before, and must not have changed since. Use Edit to change a part.',
  input: { file_path: filePath, content: Type.String({ description: 'The whole content.' }) },
  reply: Type.Object({ bytes: Type.Integer(), ...changed }),
  call: (input) => ({ op: 'write', args: input }),
  show: ({ bytes, findings }, { file_path }) => ({
    text: `wrote ${bytes} bytes to ${file_path}${findingsAfter(findings)}`,
    ...structuredFindings(findings),
  }),
})

const replacement = {
  old_string: Type.String({ description: 'Text to replace, exactly as in the file.' }),
  new_string: Type.String({ description: 'Text to insert, literally.' }),
  replace_all: Type.Optional(
    Type.Boolean({ description: 'Replace every occurrence. Default: false, which requires a unique match.' }),
  ),
}
const edited = Type.Object({ count: Type.Integer(), ...changed })

export const editTool = workspaceTool({
  name: 'Edit',
  title: 'Edit a file',
  readOnly: false,
  description:
    'Replace text in a file of the workspace that was read before. old_string must occur exactly once, with white space as in the file, unless replace_all is true. Line endings and permissions are kept.',
  input: { file_path: filePath, ...replacement },
  reply: edited,
  call: ({ file_path, ...edit }) => ({ op: 'edit', args: { file_path, edits: [edit] } }),
  show: ({ count, findings }, { file_path }) => ({
    text: `replaced ${count} occurrence(s) in ${file_path}${findingsAfter(findings)}`,
    ...structuredFindings(findings),
  }),
})

export const multiEditTool = workspaceTool({
  name: 'MultiEdit',
  title: 'Edit a file in several places',
  readOnly: false,
  description:
    'Apply several replacements to one file, one after the other. If one of them fails, the file is not changed.',
  input: {
    file_path: filePath,
    edits: Type.Array(Type.Object(replacement, { additionalProperties: false }), { minItems: 1, maxItems: 200 }),
  },
  reply: edited,
  call: (input) => ({ op: 'edit', args: input }),
  show: ({ count, findings }, { file_path, edits }) => ({
    text: `replaced ${count} occurrence(s) in ${file_path} with ${edits.length} edits${findingsAfter(findings)}`,
    ...structuredFindings(findings),
  }),
})

/** Findings that a fast checker has for the file now. */
export function findingsAfter(findings: readonly Finding[] | null): string {
  if (!findings || findings.length === 0) return ''
  return `\npost-edit lint findings (${findings.length}):\n${findingLines(findings)}`
}

export const structuredFindings = (findings: readonly Finding[] | null) =>
  findings && findings.length > 0 ? { structured: { findings: [...findings] } } : {}
