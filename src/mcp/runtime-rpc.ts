import { closestName } from '../base/closest-name.ts'
import { Refusal } from '../base/errors.ts'
import { parseJson } from '../base/json.ts'
import type { Admin } from '../core/admin/admin.ts'
import type { Runtime } from '../core/runtime/runtime.ts'
import { mayCall } from '../core/runtime/tool-access.ts'
import { fault, type Log } from '../observe/log.ts'
import { runtimePrompts, toListing, toText } from '../tools/runtime/prompts.ts'
import { readResource, resourceListings, resourceTemplates } from '../tools/runtime/resources.ts'
import { findRuntimeTool, runtimeTools } from '../tools/runtime/tools.ts'
import { own, type Params, parseMessage, type RequestId } from './json-rpc/message.ts'
import { optionalObjectParam, stringParam } from './params.ts'

/** The error codes of this endpoint; https://www.jsonrpc.org/specification#error_object leaves -32000 and below to servers. */
export const runtimeErrors = {
  parse_error: -32700,
  invalid_request: -32600,
  method_not_found: -32601,
  invalid_params: -32602,
  internal_error: -32603,
  tool_failed: -32000,
  tool_not_found: -32001,
  unauthorized: -32002,
} as const

export interface RuntimeRpcContext {
  runtime: Runtime
  admin: Admin
  serverVersion: string
  log: Log
}

/** What HTTP sends; a notification has no body. */
export interface RuntimeReply {
  status: number
  body: string | null
}

/** Versions of MCP whose messages are the same here; clients that know another one are offered the oldest. */
const protocolVersions = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'] as const

/** Answers one message. Never rejects. */
export async function handleRuntimeRpc(body: Buffer, context: RuntimeRpcContext): Promise<RuntimeReply> {
  let id: RequestId | null = null
  try {
    const message = parseMessage(parseJson(body))
    switch (message.kind) {
      case 'notification':
      case 'response':
        return { status: 202, body: null }
      case 'invalid':
        return runtimeError(message.id, message.refusal, message.refusal.row.http)
      case 'request': {
        id = message.id
        const result = await answer(message.method, message.params, context)
        return { status: 200, body: `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${JSON.stringify(result)}}` }
      }
    }
  } catch (error) {
    const refusal = error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, context.log) })
    return runtimeError(id, refusal, statusOf(refusal))
  }
}

/** Errors of methods are answered with 200, as usual for JSON-RPC over HTTP; those of the envelope and of access are not. */
function statusOf({ code, row }: Refusal): number {
  const isOfEnvelope = code === 'parse_error' || code === 'invalid_request'
  return isOfEnvelope || row.kind === 'unauthenticated' || row.kind === 'forbidden' ? row.http : 200
}

/** Encodes an error. */
export const runtimeError = (id: RequestId | null, refusal: Refusal, status: number): RuntimeReply => {
  const { code, message, hint } = refusal
  const error = { code: codeOf(refusal), message, data: { code, hint } }
  return { status, body: `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":${JSON.stringify(error)}}` }
}

function codeOf({ code, row }: Refusal): number {
  if (code === 'unknown_tool') return runtimeErrors.tool_not_found
  switch (row.kind) {
    case 'malformed_json':
      return runtimeErrors.parse_error
    case 'method_not_found':
      return runtimeErrors.method_not_found
    case 'invalid_request':
    case 'body_too_large':
    case 'unsupported_media_type':
      return runtimeErrors.invalid_request
    case 'unauthenticated':
    case 'forbidden':
      return runtimeErrors.unauthorized
    case 'invalid_params':
    case 'invalid_argument':
    case 'not_found':
      return runtimeErrors.invalid_params
    default:
      return code === 'fault' ? runtimeErrors.internal_error : runtimeErrors.tool_failed
  }
}

async function answer(method: string, params: Params, context: RuntimeRpcContext): Promise<object> {
  switch (method) {
    case 'initialize':
      return initialize(params, context)
    case 'ping':
      return {}
    case 'tools/list':
      return { tools: runtimeTools.filter((tool) => mayCall(context.admin, tool)).map(({ listing }) => listing) }
    case 'tools/call':
      return callTool(params, context)
    case 'prompts/list':
      return { prompts: runtimePrompts.map(toListing) }
    case 'prompts/get':
      return getPrompt(params)
    case 'resources/list':
      return { resources: resourceListings() }
    case 'resources/templates/list':
      return { resourceTemplates }
    case 'resources/read':
      return readAt(params, context)
    default:
      throw new Refusal('method_not_found', { method: method.slice(0, 128) })
  }
}

function initialize(params: Params, { serverVersion }: RuntimeRpcContext): object {
  const wanted = own(params, 'protocolVersion')
  return {
    protocolVersion: protocolVersions.find((version) => version === wanted) ?? protocolVersions[0],
    capabilities: { tools: { listChanged: false }, prompts: { listChanged: false }, resources: { listChanged: false } },
    serverInfo: { name: 'glovebox-runtime', title: 'Glovebox runtime', version: serverVersion },
    instructions: 'Start with the tool system_get_health. Each issue names what to do about it.',
  }
}

/** @throws Refusal `unknown_tool` and those of the tool. */
async function callTool(params: Params, { runtime, admin, log }: RuntimeRpcContext): Promise<object> {
  const name = stringParam(params, 'name')
  const tool = findRuntimeTool(name)
  if (tool === undefined) throw new Refusal('unknown_tool', { tool: meantBy(name) })
  const report = await orFault(log, tool.call(runtime, admin, own(params, 'arguments') ?? own(params, 'args')))
  return { content: [{ type: 'text', text: JSON.stringify(report) }], structuredContent: report, isError: false }
}

/** Returns the name as it was given, and the tool that was probably meant. */
function meantBy(name: string): string {
  const meant = closestName(
    name,
    runtimeTools.map((tool) => tool.name),
  )
  return `${name.slice(0, 128)}${meant === undefined ? '' : `. Did you mean ${meant}?`}`
}

/** @throws Refusal `tool_failed` instead of an unexpected error, which is logged. */
async function orFault(log: Log, report: Promise<object>): Promise<object> {
  try {
    return await report
  } catch (error) {
    throw error instanceof Refusal ? error : new Refusal('tool_failed', { faultId: fault(error, log) })
  }
}

/** @throws Refusal `unknown_prompt`, `invalid_argument`. */
function getPrompt(params: Params): object {
  const name = stringParam(params, 'name')
  const prompt = runtimePrompts.find((one) => one.name === name)
  if (prompt === undefined) throw new Refusal('unknown_prompt', { prompt: name.slice(0, 128) })
  const given = optionalObjectParam(params, 'arguments')
  for (const [argument, value] of Object.entries(given)) {
    if (typeof value !== 'string')
      throw new Refusal('invalid_argument', {
        field: `arguments.${argument.slice(0, 128)}`,
        problem: 'must be a string',
      })
  }
  for (const { name: argument, required } of toListing(prompt).arguments) {
    if (required && !Object.hasOwn(given, argument))
      throw new Refusal('invalid_argument', { field: `arguments.${argument}`, problem: 'is required and missing' })
  }
  const text = toText(prompt, given as Record<string, string>)
  return { description: prompt.description, messages: [{ role: 'user', content: { type: 'text', text } }] }
}

/** @throws Refusal `resource_unknown`. */
async function readAt(params: Params, { runtime }: RuntimeRpcContext): Promise<object> {
  const uri = stringParam(params, 'uri')
  const contents = await readResource(runtime, uri)
  if (contents === undefined) throw new Refusal('resource_unknown', { uri: uri.slice(0, 2048) })
  return { contents: [contents] }
}
