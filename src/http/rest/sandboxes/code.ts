import type { TObject, TSchema } from 'typebox'
import Type from 'typebox'
import type { RefusalCode } from '../../../base/errors.ts'
import { toLanguage } from '../../../base/run.ts'
import { StreamDecoder } from '../../../core/runs/stream-decoder.ts'
import type { CallEvent } from '../../../core/sandboxes/kernels/calls.ts'
import type { SandboxRef } from '../../../core/sandboxes/names.ts'
import { collectCall } from '../../../tools/sandbox/collected-call.ts'
import { created, type KeyCall, keyOperation, noContent, type Operation, ok } from '../../operation.ts'
import { named } from '../../schemas.ts'
import { wantsLines } from '../execution-output.ts'
import { line } from '../output-lines.ts'
import {
  CodeBody,
  CodeLine,
  CodeResult,
  ContextBody,
  ContextList,
  ContextSchema,
  contextOnTheWire,
  displayOnTheWire,
  endedOnTheWire,
  RewindBody,
  RewoundSchema,
} from './code-schemas.ts'
import { outputOnTheWire } from './process-lines.ts'
import { gone, keepRequiring, ms, sendAsLines } from './requests.ts'
import { namespaceParameter, refOf, sandboxGroup, sandboxRefusals } from './schemas.ts'

const path = '/v1/sandboxes/{name}'
const contextPath = `${path}/contexts/{context}` as const
const refusals: readonly RefusalCode[] = [...sandboxRefusals, 'context_unknown', 'interpreter_missing']
const common = { capability: 'sandboxes.execute', group: sandboxGroup, query: namespaceParameter } as const

const runCode = keyOperation({
  ...common,
  id: 'runSandboxCode',
  method: 'POST',
  path: `${path}/code`,
  summary:
    'Run code in an interpreter of a sandbox that keeps its variables between calls. With Accept: application/x-ndjson the answer streams line by line. Every call that began is answered with 200, however it ended',
  body: CodeBody,
  aliases: { language: toLanguage },
  answers: { 200: CodeResult },
  lines: CodeLine,
  refusals: [
    ...refusals,
    ...(['code_empty', 'code_too_large', 'language_unavailable', 'timeout_too_long'] as const),
    ...(['context_language', 'context_busy', 'contexts_full'] as const),
  ],
  handle: async ({ core, caller, params, query, body, request, reply }) => {
    const { timeout, stdin, env_vars, ...rest } = body
    const ref = refOf(params, query)
    keepRequiring(reply, { core }, 'sandboxes.execute')
    const input = stdin === undefined ? undefined : Buffer.from(stdin)
    const asked = { ...rest, env: env_vars, timeoutMs: ms(timeout), stdin: input }
    const events = await core.sandboxCode.run(caller, ref, asked, gone(reply))
    if (wantsLines(request)) return sendAsLines(reply, events, codeLines())
    const call = await collectCall(events, caller.profile.limits.outputSoftBytes, 'apart')
    const displays = call.displays.map(displayOnTheWire)
    return ok({ ...endedOnTheWire(call.ended), ...outputOnTheWire(call), displays })
  },
})

/** Returns a function that turns the events of a call into lines of JSON. */
function codeLines(): (event: CallEvent) => string {
  const decoder = new StreamDecoder()
  const text = (type: 'stdout' | 'stderr', data: string) => (data === '' ? '' : line({ type, data }))
  const rests = () => text('stdout', decoder.flush('stdout')) + text('stderr', decoder.flush('stderr'))
  return (event) => {
    switch (event.kind) {
      case 'output':
        return text(event.stream, decoder.add(event.stream, event.bytes))
      case 'gap':
        return (
          text(event.stream, decoder.flush(event.stream)) +
          line({ type: 'gap', stream: event.stream, bytes: event.bytes })
        )
      case 'display':
        return rests() + line({ type: 'display', ...displayOnTheWire(event) })
      case 'ended':
        return rests() + line({ type: 'ended', ...endedOnTheWire(event) })
    }
  }
}

/** Defines an operation on one context. */
function onContext<Body extends TObject | undefined = undefined>({
  act,
  verb,
  answer,
  more = [],
  ...definition
}: {
  id: string
  /** Appended to the path of the context; absent: it is deleted. */
  verb?: string
  summary: string
  body?: Body
  answer?: TSchema
  more?: readonly RefusalCode[]
  act(call: KeyCall<typeof contextPath, Body> & { ref: SandboxRef; context: string }): Promise<object | undefined>
}): Operation {
  return keyOperation<typeof contextPath, Body>({
    ...common,
    ...definition,
    path: (verb === undefined ? contextPath : `${contextPath}/${verb}`) as typeof contextPath,
    method: verb === undefined ? 'DELETE' : 'POST',
    answers: answer ? { 200: answer } : { 204: null },
    refusals: [...refusals, ...more],
    handle: async (call) => {
      const result = await act({ ...call, ref: refOf(call.params, call.query), context: call.params.context })
      return result ? ok(result) : noContent
    },
  })
}

export const codeOperations: readonly Operation[] = [
  runCode,
  keyOperation({
    ...common,
    id: 'listSandboxContexts',
    method: 'GET',
    path: `${path}/contexts`,
    summary: 'List the contexts of a sandbox: interpreters that keep their state between calls',
    answers: { 200: ContextList },
    refusals: sandboxRefusals,
    handle: async ({ core, caller, params, query }) => {
      const contexts = await core.sandboxCode.contexts(caller, refOf(params, query))
      return ok({ data: contexts.map(contextOnTheWire) })
    },
  }),
  keyOperation({
    ...common,
    id: 'createSandboxContext',
    method: 'POST',
    path: `${path}/contexts`,
    summary: 'Start a further context in a sandbox',
    body: ContextBody,
    answers: { 201: ContextSchema },
    refusals: [...sandboxRefusals, 'contexts_full', 'language_unavailable', 'interpreter_missing'],
    handle: async ({ core, caller, params, query, body: { rewind_files: rewindFiles, ...body } }) => {
      const context = await core.sandboxCode.createContext(caller, refOf(params, query), { ...body, rewindFiles })
      return created(contextOnTheWire(context))
    },
  }),
  onContext({
    id: 'deleteSandboxContext',
    summary: 'End a context with its variables',
    act: async ({ core, caller, ref, context }) => {
      await core.sandboxCode.removeContext(caller, ref, context)
      return undefined
    },
  }),
  onContext({
    id: 'restartSandboxContext',
    verb: 'restart',
    summary: 'End the interpreter of a context; the next call starts a new one',
    act: async ({ core, caller, ref, context }) => {
      await core.sandboxCode.restartContext(caller, ref, context)
      return undefined
    },
  }),
  onContext({
    id: 'interruptSandboxContext',
    verb: 'interrupt',
    summary: 'Interrupt the call that runs in a context',
    answer: named(
      'InterruptedSandboxContext',
      Type.Object({ interrupted: Type.Boolean({ description: 'Whether a call was running.' }) }),
    ),
    act: async ({ core, caller, ref, context }) => ({
      interrupted: await core.sandboxCode.interrupt(caller, ref, context),
    }),
  }),
  onContext({
    id: 'rewindSandboxContext',
    verb: 'rewind',
    summary: 'Put the variables of a context back as they were before its last calls',
    body: RewindBody,
    answer: RewoundSchema,
    more: ['rewind_unavailable'],
    act: async ({ core, caller, ref, context, body }) => {
      const { calls, notRewound, files = null } = await core.sandboxCode.rewind(caller, ref, { context, ...body })
      return { calls, not_rewound: notRewound, files }
    },
  }),
]
