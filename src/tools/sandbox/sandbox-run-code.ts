import Type from 'typebox'
import { type Language, languages, toLanguage } from '../../base/run.ts'
import type { CallEnded } from '../../core/sandboxes/kernels/calls.ts'
import type { Content } from '../content.ts'
import { tool } from '../tool.ts'
import { target, textResult, toRef } from './arguments.ts'
import { type CollectedCall, collectCall } from './collected-call.ts'
import { describeEnding } from './endings.ts'
import { shortened } from './sandbox-run-command.ts'

export const sandboxRunCode = tool({
  name: 'sandbox_run_code',
  title: 'Run code in a sandbox',
  toolset: 'sandbox',
  capabilities: ['sandboxes.execute'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  describe: ({ timeoutDefaultMs }) =>
    `Run code in a running sandbox and keep its variables, imports and functions for the next call, as in a notebook. The value of the last expression is shown. A call is interrupted after ${timeoutDefaultMs / 1_000} s by default.`,
  input: Type.Object(
    {
      ...target,
      code: Type.String({ description: 'Source code.' }),
      language: Type.Unsafe<Language>({ type: 'string', enum: [...languages] }),
      context: Type.Optional(
        Type.String({ description: 'ID of a context; the default one of the language if absent.' }),
      ),
      timeout: Type.Optional(Type.Number({ exclusiveMinimum: 0, description: 'Seconds.' })),
      stdin: Type.Optional(Type.String({ description: 'Standard input; empty by default.' })),
    },
    { additionalProperties: false },
  ),
  aliases: { language: toLanguage },
  narrow: (input) => input,
  run: async (caller, given, { core, signal }) => {
    const { code, language, context, timeout, stdin } = given
    const timeoutMs = timeout === undefined ? undefined : timeout * 1_000
    const input = stdin === undefined ? undefined : Buffer.from(stdin)
    const request = { code, language, context: context || undefined, timeoutMs, stdin: input }
    const events = await core.sandboxCode.run(caller, toRef(given), request, signal)
    const call = await collectCall(events, caller.profile.limits.outputSoftBytes)
    const output = call.pieces.map(({ text }) => text).join('')
    const notes = notesOn(call.ended)
    const text = [shortened(output, caller.profile.calls.mcpOutputCharacters), ...notes].filter(Boolean).join('\n')
    const isError = call.ended.ending.kind !== 'completed' || (call.ended.ending.exitCode ?? 0) !== 0
    const result = textResult(text === '' ? 'The code ran and wrote nothing.' : text, isError)
    return { ...result, content: [...result.content, ...imagesOf(call)] }
  },
})

/** Images that the code displayed or returned. */
const imagesOf = ({ displays }: CollectedCall): Content[] =>
  displays.flatMap(({ data }) =>
    (['image/png', 'image/jpeg'] as const).flatMap((mimeType) => {
      const bytes = data[mimeType]
      if (bytes === undefined) return []
      const base64 = typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString('base64')
      return [{ type: 'image' as const, data: base64, mimeType }]
    }),
  )

/** What a model must know besides the output. */
function notesOn({ ending, state, lostBefore }: CallEnded): string[] {
  const notes: string[] = []
  if (lostBefore !== undefined) notes.push(`The variables of earlier calls were lost: ${lostBefore}.`)
  switch (ending.kind) {
    case 'completed':
      if ((ending.exitCode ?? 0) !== 0) notes.push(`The last command exited with code ${ending.exitCode}.`)
      break
    case 'raised':
      break
    case 'exited':
      notes.push(`The code exited with code ${ending.code}.`)
      break
    case 'timed_out':
      notes.push(`The code was interrupted after ${ending.limitMs / 1_000} s.`)
      break
    case 'interrupted':
      notes.push('The code was interrupted.')
      break
    case 'kernel_ended':
      notes.push(`The interpreter ${describeEnding(ending.ending)}.`)
  }
  if (state === 'lost') notes.push('Its variables are lost; files are kept.')
  if (state === 'restored') notes.push('Its variables are those before this call.')
  return notes
}

export const sandboxRewind = tool({
  name: 'sandbox_rewind',
  title: 'Undo calls of sandbox_run_code',
  toolset: 'sandbox',
  capabilities: ['sandboxes.execute'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
  describe: () =>
    'Put the variables of a context back as they were before its last calls of sandbox_run_code. The context must have been created by sandbox_contexts with rewind, and for files with rewind_files. Where no copy was kept, the error says so.',
  input: Type.Object(
    {
      ...target,
      calls: Type.Integer({ minimum: 1, maximum: 1000, description: 'Number of calls to undo.' }),
      context: Type.Optional(Type.String({ description: 'ID of a context; python if it is absent.' })),
      files: Type.Optional(Type.Boolean({ description: 'Whether files go back as well.' })),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, given, { core }) => {
    const { calls, context, files } = given
    const rewound = await core.sandboxCode.rewind(caller, toRef(given), { calls, context, files })
    const { calls: undone, notRewound } = rewound
    const changed = rewound.files
      ? ` Files: ${rewound.files.restored} put back, ${rewound.files.removed} removed, without /tmp and volumes.`
      : ''
    const rest = notRewound.length === 0 ? '' : ` Not undone: ${notRewound.join(', ')}.`
    return textResult(`Undid ${undone} calls.${changed}${rest}`)
  },
})
