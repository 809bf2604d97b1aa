import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { type Context, type KernelLanguage, kernelLanguages } from '../../core/sandboxes/kernels/calls.ts'
import { rewindMax } from '../../core/sandboxes/kernels/kernels.ts'
import { tool } from '../tool.ts'
import { target, textResult, toRef } from './arguments.ts'

const actions = ['list', 'create', 'restart', 'interrupt', 'delete'] as const

export const sandboxContexts = tool({
  name: 'sandbox_contexts',
  title: 'Manage contexts of a sandbox',
  toolset: 'sandbox',
  capabilities: ['sandboxes.execute'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
  describe: () =>
    'Manage the interpreters of a sandbox that keep variables between calls of sandbox_run_code. Each language has a default one. Actions: create starts a further one and returns its ID for the argument context; restart clears its variables; interrupt stops the call that runs in it; delete ends it; list shows all.',
  input: Type.Object(
    {
      ...target,
      action: Type.Unsafe<(typeof actions)[number]>({ type: 'string', enum: [...actions] }),
      context: Type.Optional(Type.String({ description: 'ID of the context; for all actions but list and create.' })),
      language: Type.Optional(
        Type.Unsafe<KernelLanguage>({ type: 'string', enum: [...kernelLanguages], description: 'For create.' }),
      ),
      cwd: Type.Optional(Type.String({ description: 'For create: absolute path of the working directory.' })),
      rewind: Type.Optional(
        Type.Integer({
          minimum: 0,
          maximum: rewindMax,
          description: 'For create, Python only: number of calls that sandbox_rewind can undo; 0 by default.',
        }),
      ),
      rewind_files: Type.Optional(
        Type.Boolean({ description: 'For create, with rewind: whether files can be put back as well.' }),
      ),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, given, { core }) => {
    const ref = toRef(given)
    const { action, context, language, cwd, rewind, rewind_files: rewindFiles } = given
    const { sandboxCode: code } = core
    switch (action) {
      case 'list': {
        const lines = (await code.contexts(caller, ref)).map(describeContext)
        return textResult(lines.join('\n') || 'No context has been used.')
      }
      case 'create': {
        const created = await code.createContext(caller, ref, {
          language: language ?? missing('language'),
          cwd,
          rewind,
          rewindFiles,
        })
        return textResult(`Created ${describeContext(created)}.`)
      }
      case 'restart':
        await code.restartContext(caller, ref, context ?? missing('context'))
        return textResult(`Context ${context} has no variables now.`)
      case 'interrupt': {
        const didRun = await code.interrupt(caller, ref, context ?? missing('context'))
        return textResult(didRun ? `Interrupted the call of context ${context}.` : 'No call was running.')
      }
      case 'delete':
        await code.removeContext(caller, ref, context ?? missing('context'))
        return textResult(`Deleted context ${context}.`)
    }
  },
})

function missing(field: string): never {
  throw new Refusal('invalid_argument', { field, problem: 'is required for this action' })
}

const describeContext = ({ id, language, state, rewindable, keepsFiles }: Context): string => {
  const undoable = rewindable > 0 ? `, ${rewindable} calls can be undone${keepsFiles ? ' with their files' : ''}` : ''
  return `context ${id}: ${language}, ${state.replace('_', ' ')}${undoable}`
}
