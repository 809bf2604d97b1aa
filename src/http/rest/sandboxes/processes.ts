import type { TObject } from 'typebox'
import type { RefusalCode } from '../../../base/errors.ts'
import { exitCodeOf } from '../../../base/exit-codes.ts'
import type { SandboxRef } from '../../../core/sandboxes/names.ts'
import { created, type KeyCall, keyOperation, noContent, type Operation, ok } from '../../operation.ts'
import { encodingOf, wantsLines } from '../execution-output.ts'
import { outputOnTheWire, processLines } from './process-lines.ts'
import {
  CommandBody,
  CommandResult,
  ProcessBody,
  ProcessLine,
  ProcessList,
  ProcessOutput,
  SignalBody,
  SizeBody,
  StdinBody,
} from './process-schemas.ts'
import { gone, keepRequiring, ms, numberIn, sendAsLines, toNumber } from './requests.ts'
import {
  namespaceParameter,
  Process,
  processEndingOnTheWire,
  processOnTheWire,
  refOf,
  sandboxGroup,
  sandboxRefusals,
} from './schemas.ts'

const path = '/v1/sandboxes/{name}'
const processPath = `${path}/processes/{process}` as const
const refusals: readonly RefusalCode[] = [...sandboxRefusals, 'process_unknown']
const commandRefusals: readonly RefusalCode[] = [...sandboxRefusals, 'command_is_shell', 'timeout_too_long']

const common = { capability: 'sandboxes.execute', group: sandboxGroup, query: namespaceParameter } as const

const runCommand = keyOperation({
  ...common,
  id: 'runSandboxCommand',
  method: 'POST',
  path: `${path}/commands`,
  summary: 'Execute a command in a sandbox and wait for its end',
  body: CommandBody,
  answers: { 200: CommandResult },
  refusals: commandRefusals,
  handle: async ({ core, caller, params, query, body, reply }) => {
    const { timeout, stdin, env_vars, ...rest } = body
    const ref = refOf(params, query)
    keepRequiring(reply, { core }, 'sandboxes.execute')
    const input = stdin === undefined ? undefined : Buffer.from(stdin)
    const asked = { ...rest, env: env_vars, timeoutMs: ms(timeout), stdin: input }
    const result = await core.sandboxProcesses.run(caller, ref, asked, gone(reply))
    const { ending, durationMs, outputLimitBytes } = result
    const exitCode = exitCodeOf(ending)
    return ok({
      exit_code: exitCode,
      success: exitCode === 0,
      ending: processEndingOnTheWire(ending),
      ...outputOnTheWire(result),
      ...(outputLimitBytes !== undefined && { output_limit_bytes: outputLimitBytes }),
      duration_ms: durationMs,
    })
  },
})

const followOutput = keyOperation({
  ...common,
  id: 'getSandboxProcessOutput',
  method: 'GET',
  path: `${processPath}/output`,
  summary:
    'Get the output of a process after a cursor. With Accept: application/x-ndjson it is followed line by line until the process ends',
  query: {
    ...namespaceParameter,
    after:
      'The cursor, or the seq of a line; everything that is kept if it is absent. One beyond the end stands for the end.',
    wait: 'Seconds to wait for output, at most 50.',
    encoding: 'Encoding of output in lines: text (the default), or base64 for the exact bytes.',
  },
  answers: { 200: ProcessOutput },
  lines: ProcessLine,
  refusals,
  handle: async ({ core, caller, params, query, request, reply }) => {
    const ref = refOf(params, query)
    const process = toNumber(params.process)
    await core.requireCapability(caller, 'sandboxes.execute')
    const after = numberIn(query, 'after')
    keepRequiring(reply, { core }, 'sandboxes.execute')
    const signal = gone(reply)
    if (wantsLines(request)) {
      const toLines = processLines(encodingOf(query.encoding))
      return sendAsLines(reply, await core.sandboxProcesses.follow(caller, ref, process, after, signal), toLines)
    }
    const waitMs = numberIn(query, 'wait') * 1_000
    const polled = await core.sandboxProcesses.poll(caller, ref, process, { cursor: after, waitMs, signal })
    const { cursor, ending } = polled
    return ok({ ...outputOnTheWire(polled), cursor, ending: ending ? processEndingOnTheWire(ending) : null })
  },
})

type ProcessPath = `${typeof processPath}${string}`

/** Defines an operation on one process that returns nothing. */
function change<Body extends TObject | undefined = undefined>({
  act,
  method = 'POST',
  refusals: more = [],
  ...definition
}: {
  id: string
  path: ProcessPath
  summary: string
  method?: 'POST' | 'DELETE'
  /** Besides those of every operation on a process. */
  refusals?: readonly RefusalCode[]
  body?: Body
  act(call: KeyCall<typeof processPath, Body> & { ref: SandboxRef; process: number }): Promise<void>
}): Operation {
  return keyOperation<typeof processPath, Body>({
    ...common,
    ...definition,
    path: definition.path as typeof processPath,
    method,
    answers: { 204: null },
    refusals: [...refusals, ...more],
    handle: async (call) => {
      await act({ ...call, ref: refOf(call.params, call.query), process: toNumber(call.params.process) })
      return noContent
    },
  })
}

export const processOperations: readonly Operation[] = [
  runCommand,
  keyOperation({
    ...common,
    id: 'startSandboxProcess',
    method: 'POST',
    path: `${path}/processes`,
    summary: 'Start a background process in a sandbox',
    body: ProcessBody,
    answers: { 201: Process },
    refusals: commandRefusals,
    handle: async ({ core, caller, params, query, body: { timeout, env_vars, ...rest } }) => {
      const asked = { ...rest, env: env_vars, timeoutMs: ms(timeout) }
      return created(processOnTheWire(await core.sandboxProcesses.start(caller, refOf(params, query), asked)))
    },
  }),
  keyOperation({
    ...common,
    id: 'listSandboxProcesses',
    method: 'GET',
    path: `${path}/processes`,
    summary: 'List the processes that calls have started in a sandbox',
    answers: { 200: ProcessList },
    refusals: sandboxRefusals,
    handle: async ({ core, caller, params, query }) => {
      const processes = await core.sandboxProcesses.list(caller, refOf(params, query))
      return ok({ data: processes.map(processOnTheWire) })
    },
  }),
  keyOperation({
    ...common,
    id: 'getSandboxProcess',
    method: 'GET',
    path: processPath,
    summary: 'Get a process, after it has ended or the wait is over',
    query: { ...namespaceParameter, wait: 'Seconds to wait for its end, at most 50.' },
    answers: { 200: Process },
    refusals,
    handle: async ({ core, caller, params, query, reply }) => {
      const ref = refOf(params, query)
      const process = toNumber(params.process)
      await core.requireCapability(caller, 'sandboxes.execute')
      const waitMs = numberIn(query, 'wait') * 1_000
      keepRequiring(reply, { core }, 'sandboxes.execute')
      const waiting = { waitMs, signal: gone(reply) }
      return ok(processOnTheWire(await core.sandboxProcesses.wait(caller, ref, process, waiting)))
    },
  }),
  followOutput,
  change({
    id: 'writeSandboxProcessInput',
    path: `${processPath}/stdin`,
    summary: 'Write to the standard input of a process, and close it',
    body: StdinBody,
    refusals: ['input_full'],
    act: async ({ core, caller, ref, process, reply, body: { data, data_base64, close } }) => {
      keepRequiring(reply, { core }, 'sandboxes.execute')
      const signal = gone(reply)
      const bytes = data_base64 === undefined ? Buffer.from(data ?? '') : Buffer.from(data_base64, 'base64')
      if (bytes.length > 0 || !close) await core.sandboxProcesses.write(caller, ref, process, bytes, signal)
      if (close && !signal.aborted) await core.sandboxProcesses.closeStdin(caller, ref, process)
    },
  }),
  change({
    id: 'signalSandboxProcess',
    path: `${processPath}/signal`,
    summary: 'Send a signal to a process and its process group',
    body: SignalBody,
    act: ({ core, caller, ref, process, body: { signal } }) =>
      core.sandboxProcesses.signal(caller, ref, process, signal),
  }),
  change({
    id: 'resizeSandboxProcess',
    path: `${processPath}/resize`,
    summary: 'Change the size of the terminal of a process',
    body: SizeBody,
    act: ({ core, caller, ref, process, body }) => core.sandboxProcesses.resize(caller, ref, process, body),
  }),
  change({
    id: 'forgetSandboxProcess',
    method: 'DELETE',
    path: processPath,
    summary: 'Kill a process if it runs, and forget it with its output',
    act: ({ core, caller, ref, process }) => core.sandboxProcesses.forget(caller, ref, process),
  }),
]
