import type { RouteHandlerMethod } from 'fastify'
import Type from 'typebox'
import type { Capability } from '../base/capabilities.ts'
import { Refusal } from '../base/errors.ts'
import { errorBodyOf } from '../microsandbox/errors.ts'
import { handleAlias, handleRpc, type RpcReply } from '../microsandbox/handle.ts'
import type { ResultForm } from '../microsandbox/mcp.ts'
import { sendJson } from './answer.ts'
import type { Group, Operation, Raw, ServerContext } from './operation.ts'
import { readQuery } from './query.ts'
import { gone, keepRequiring } from './rest/sandboxes/requests.ts'

const group: Group = {
  name: 'microsandbox',
  description: 'The API of microsandbox, for its clients: named sandboxes over JSON-RPC and MCP.',
}

const json: Raw = { mediaType: 'application/json' }
const query = { results: 'json returns results of tools as the server of microsandbox does; text is the default.' }

const common = {
  access: 'key',
  group,
  errorBody: errorBodyOf,
  refusals: ['parse_error', 'sandbox_unknown', 'sandbox_not_running', 'limit_reached', 'namespace_denied'],
} as const

/** Paths of later clients, which name the method. */
const aliases = {
  startSandboxOfMicrosandbox: ['/api/v1/sandbox/start', 'sandbox.start'],
  stopSandboxOfMicrosandbox: ['/api/v1/sandbox/stop', 'sandbox.stop'],
  runCodeOfMicrosandbox: ['/api/v1/sandbox/repl/run', 'sandbox.repl.run'],
  runCommandOfMicrosandbox: ['/api/v1/sandbox/command/run', 'sandbox.command.run'],
  getMetricsOfMicrosandbox: ['/api/v1/sandbox/metrics/get', 'sandbox.metrics.get'],
} as const

export const microsandboxOperations: readonly Operation[] = [
  {
    ...common,
    id: 'microsandboxHealth',
    method: 'GET',
    path: '/api/v1/health',
    access: 'open',
    capability: null,
    summary: 'Liveness probe of microsandbox',
    answers: { 200: Type.Object({ message: Type.String() }) },
    refusals: [],
    handler: () => async (_request, reply) => sendJson(reply, 200, '{"message":"Service is healthy"}'),
  },
  {
    ...common,
    id: 'microsandboxRpc',
    method: 'POST',
    path: '/api/v1/rpc',
    capability: null,
    summary: 'Send a JSON-RPC message of microsandbox, or an MCP message; see docs/sandboxes.md',
    query,
    body: json,
    answers: { 200: json, 202: null },
    handler: rpcHandler((context, body, form) => handleRpc(context, body, form)),
  },
  ...Object.entries(aliases).map(
    ([id, [path, method]]): Operation => ({
      ...common,
      id,
      method: 'POST',
      path,
      capability: null,
      summary: `Call ${method}, as the clients of microsandbox of 2026 do`,
      body: json,
      answers: { 200: json },
      handler: rpcHandler((context, body) => handleAlias(context, method, body)),
    }),
  ),
]

type Answer = (context: Parameters<typeof handleRpc>[0], body: Buffer, form: ResultForm) => Promise<RpcReply>

function rpcHandler(answer: Answer): (server: ServerContext) => RouteHandlerMethod {
  return ({ core }) =>
    async (request, reply) => {
      const form = formOf(readQuery(request.query, query).results)
      const sent = (request.body as Buffer | undefined) ?? Buffer.alloc(0)
      // A call may take long; it must not keep the body of its request.
      request.body = undefined
      const context = {
        ...{ core, caller: request.caller, signal: gone(reply) },
        keepRequiring: (capability: Capability) => keepRequiring(reply, { core }, capability),
      }
      const { status, body } = await answer(context, sent, form)
      if (body) return sendJson(reply, status, JSON.stringify(body))
      await reply.code(status).send()
    }
}

function formOf(results = 'text'): ResultForm {
  if (results === 'text' || results === 'json') return results
  throw new Refusal('invalid_argument', { field: 'results', problem: 'must be text or json' })
}
