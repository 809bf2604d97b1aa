import type { Capability } from '../base/capabilities.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import type { OutputPiece } from '../core/sandboxes/command-output.ts'
import type { CallEnded } from '../core/sandboxes/kernels/calls.ts'
import type { SandboxMetrics } from '../core/sandboxes/view.ts'
import type { Params } from '../mcp/json-rpc/message.ts'
import { collectCall } from '../tools/sandbox/collected-call.ts'
import { describeEnding } from '../tools/sandbox/endings.ts'
import { RpcError, rpcCodes } from './errors.ts'
import { codeRequestOf, commandRequestOf, namespaceOf, portsOf, refOf, startRequestOf, textOf } from './params.ts'

/** What a call of this door works with. */
export interface RpcContext {
  core: Core
  caller: Caller
  /** Aborts when the client disconnects. */
  signal: AbortSignal
  /** Ends the call when its key loses a capability. */
  keepRequiring(capability: Capability): void
}

/** A line of output: microsandbox returns lines without their line breaks, and its clients add them again. */
interface OutputLine {
  stream: 'stdout' | 'stderr'
  text: string
}

export interface ReplResult {
  status: 'success' | 'error'
  language: string
  output: OutputLine[]
}

const MiB = 1024 * 1024
const metricsMax = 200

type Method = (context: RpcContext, params: Params) => Promise<unknown>

/** The JSON-RPC methods of microsandbox, with the results that its server returns. */
export const methods: Readonly<Record<string, Method>> = {
  'sandbox.start': async ({ core, caller }, params) => {
    const ref = refOf(params)
    const ports = portsOf(params)
    await core.sandboxes.ensure(caller, ref, startRequestOf(params))
    for (const port of ports) await core.sandboxPorts.publish(caller, ref, { port })
    return `Sandbox ${ref.name} started successfully`
  },

  'sandbox.stop': async ({ core, caller }, params) => {
    const ref = refOf(params)
    // Clients stop the sandbox that they created, and expect that nothing but its name remains.
    await core.sandboxes.stop(caller, ref)
    return `Sandbox ${ref.name} stopped successfully`
  },

  'sandbox.metrics.get': async ({ core, caller }, params) => {
    const named = textOf(params, 'sandbox')
    const found =
      named === undefined || named === ''
        ? (await core.sandboxes.metricsOfAll(caller, { namespace: namespaceOf(params), limit: metricsMax })).items
        : [await core.sandboxes.metrics(caller, refOf(params))]
    return { sandboxes: found.map(toMetrics) }
  },

  'sandbox.repl.run': async (context, params) => (await runCode(context, params)).result,

  'sandbox.command.run': async ({ core, caller, signal, keepRequiring }, params) => {
    const { command, args, timeoutMs } = commandRequestOf(params)
    keepRequiring('sandboxes.execute')
    const { pieces, ending } = await core.sandboxProcesses.run(
      caller,
      refOf(params),
      { command, args, timeoutMs },
      signal,
    )
    if (ending.kind === 'timed_out') throw timedOut(ending.limitMs)
    if (ending.kind === 'not_started')
      throw new RpcError(400, rpcCodes.internal, `Failed to execute command: ${ending.reason}`)
    const exitCode = ending.kind === 'exited' ? ending.code : -1
    return { command, args, exit_code: exitCode, success: exitCode === 0, output: toLines(pieces) }
  },
}

/** Runs code. @returns the result of microsandbox, and the output as plain text. */
export async function runCode(
  { core, caller, signal, keepRequiring }: RpcContext,
  params: Params,
): Promise<{ result: ReplResult; text: string; isError: boolean }> {
  const request = codeRequestOf(caller, params)
  keepRequiring('sandboxes.execute')
  const events = await core.sandboxCode.run(caller, refOf(params), request, signal)
  const { pieces: output, ended } = await collectCall(events, caller.profile.limits.outputSoftBytes)
  const pieces = [...lostBefore(ended), ...output, ...lostNow(ended)]
  if (ended.ending.kind === 'timed_out') throw timedOut(ended.ending.limitMs, [...lostBefore(ended), ...lostNow(ended)])
  const isError = ended.ending.kind === 'raised' || ended.ending.kind === 'kernel_ended'
  const language = request.language === 'node' || request.language === 'typescript' ? 'nodejs' : request.language
  return {
    result: { status: isError ? 'error' : 'success', language, output: toLines(pieces) },
    text: pieces.map(({ text }) => text).join(''),
    isError,
  }
}

const timedOut = (limitMs: number, notes: readonly OutputPiece[] = []): RpcError => {
  const note = notes.map(({ text }) => `. ${text.trim()}`).join('')
  return new RpcError(400, rpcCodes.internal, `Execution timed out after ${limitMs / 1_000} seconds${note}`)
}

/** Results of microsandbox have no field for it: output says that variables were lost. */
const lostBefore = ({ lostBefore: reason }: CallEnded): OutputPiece[] =>
  reason === undefined ? [] : [{ stream: 'stderr', text: `The variables of earlier calls were lost: ${reason}.\n` }]

function lostNow({ ending, state }: CallEnded): OutputPiece[] {
  if (state === 'kept') return []
  const why = ending.kind === 'kernel_ended' ? `The interpreter ${describeEnding(ending.ending)}. ` : ''
  return [
    {
      stream: 'stderr',
      text: `${why}${state === 'lost' ? 'Its variables are lost.' : 'Its variables are those before this call.'}\n`,
    },
  ]
}

function toLines(pieces: readonly OutputPiece[]): OutputLine[] {
  return pieces.flatMap(({ stream, text }) => {
    const lines = text.split('\n')
    if (lines.at(-1) === '') lines.pop()
    return lines.map((line) => ({ stream, text: line }))
  })
}

const toMetrics = ({ namespace, name, state, figures }: SandboxMetrics) => ({
  namespace,
  name,
  running: state === 'running' || state === 'paused',
  cpu_usage: figures && percentOf(figures),
  memory_usage: figures && Math.round(figures.memoryBytes / MiB),
  disk_usage: figures?.diskBytes ?? null,
})

/** Processor time since the start, in percent of one core. */
const percentOf = ({ cpuSeconds, uptimeMs }: { cpuSeconds: number; uptimeMs: number }): number =>
  uptimeMs === 0 ? 0 : Math.round((cpuSeconds * 100_000 * 10) / uptimeMs) / 10

/** Calls a method. @throws Refusal, RpcError. */
export function callMethod(context: RpcContext, method: string, params: Params): Promise<unknown> {
  const known = Object.hasOwn(methods, method) ? methods[method] : undefined
  if (!known) throw new RpcError(404, rpcCodes.methodNotFound, `Method not found: ${method}`)
  return known(context, params)
}
