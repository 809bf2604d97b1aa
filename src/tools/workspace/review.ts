import { formatPatch, structuredPatch } from 'diff'
import Type from 'typebox'
import type { Review, ReviewedChange } from '../../base/host-workspace.ts'
import { tool } from '../tool.ts'
import { asResult } from './workspace-tool.ts'

/** Differences between two files that are looked for, and the time for it in milliseconds; beyond them only sizes are shown. */
const editsMax = 5_000
const diffMs = 500
/** Text of one answer. */
const textMaxBytes = 100 * 1024

/** Returns changes as a unified diff. Binary and large files are named with their size. */
export function reviewText({ changes, unsupported, isIncomplete }: Review): string {
  const parts: string[] = []
  let bytes = 0
  for (const change of changes) {
    const part = bytes < textMaxBytes ? diffOf(change) : `${summary(change)}\n`
    bytes += Buffer.byteLength(part)
    parts.push(part)
  }
  for (const path of unsupported) parts.push(`unsupported: ${JSON.stringify(path)} cannot be applied\n`)
  if (isIncomplete) parts.push('There are more changes than are listed.\n')
  return parts.join('')
}

const summary = ({ path, change, kind, sizeBytes }: ReviewedChange): string =>
  `${change}: ${path}${kind === 'directory' ? '/' : ''}${kind === 'file' && change !== 'deleted' ? ` (${sizeBytes} bytes)` : ''}`

function diffOf(change: ReviewedChange): string {
  const { path, kind } = change
  const [before, after] = [textIn(change.before), textIn(change.after)]
  const isText = kind !== 'directory' && isShown(change, before, after)
  if (!isText) return `${summary(change)}\n`
  const names = [
    change.change === 'added' ? '/dev/null' : `a/${path}`,
    change.change === 'deleted' ? '/dev/null' : `b/${path}`,
  ]
  const options = { context: 3, maxEditLength: editsMax, timeout: diffMs }
  const patch = structuredPatch(names[0]!, names[1]!, before ?? '', after ?? '', undefined, undefined, options)
  return patch ? formatPatch(patch).replace(/^=+\n/, '') : `${summary(change)}\n`
}

function isShown({ change }: ReviewedChange, before: string | undefined, after: string | undefined): boolean {
  return (change === 'added' || before !== undefined) && (change === 'deleted' || after !== undefined)
}

/** Returns the text of a content; `undefined` for a missing or binary one. */
function textIn(base64: string | undefined): string | undefined {
  if (base64 === undefined) return undefined
  const text = Buffer.from(base64, 'base64').toString()
  return text.includes('\0') || text.includes('\ufffd') ? undefined : text
}

export const reviewChangesTool = tool({
  name: 'review_changes',
  title: 'Show changes under review',
  toolset: 'workspace',
  capabilities: ['workspaces.read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  redacted: true,
  describe: () =>
    'Show, as a diff, the changes of a workspace whose directory the operator reviews. Only the operator can apply or drop them.',
  input: Type.Object(
    {
      paths: Type.Optional(
        Type.Array(Type.String({ maxLength: 4096 }), {
          maxItems: 100,
          description: 'Files or directories. Default: all.',
        }),
      ),
      workspace: Type.Optional(Type.String({ maxLength: 128, description: 'Name of the workspace.' })),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: (caller, { paths, workspace }, { core }) =>
    asResult(async () => {
      const text = reviewText(await core.reviews.changes(caller, workspace, paths, true))
      return { content: [{ type: 'text', text: text || 'no changes' }], isError: false }
    }),
})
