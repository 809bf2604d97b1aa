import { handleRuntimeRpc, runtimeError } from '../../mcp/runtime-rpc.ts'
import { sendJson } from '../answer.ts'
import type { Group, Operation } from '../operation.ts'

const group: Group = {
  name: 'Runtime',
  description: 'Introspection of the running server for administrators of the instance; see docs/runtime.md.',
}

/** Calls of tools are small. */
const bodyMaxBytes = 1024 * 1024

const operation = (id: string, path: string): Operation => ({
  ...{ id, method: 'POST', path, access: 'runtime', capability: null, group, bodyMaxBytes },
  summary: 'Send a JSON-RPC 2.0 message to the runtime tools; see docs/runtime.md',
  body: { mediaType: 'application/json' },
  answers: { 200: { mediaType: 'application/json' }, 202: null },
  refusals: ['parse_error', 'invalid_request', 'forbidden', 'address_not_allowed'],
  errorBody: (refusal) => runtimeError(null, refusal, refusal.row.http).body ?? '',
  handler:
    ({ core, version, log }) =>
    async (request, reply) => {
      const { admin, body } = request
      const context = { runtime: core.runtime, admin, serverVersion: version, log: request.log as typeof log }
      const answer = await handleRuntimeRpc(body as Buffer, context)
      if (answer.body === null) return reply.code(answer.status).send()
      return sendJson(reply, answer.status, answer.body)
    },
})

/** The endpoint, and the address at which clients of bx-mcp expect it. */
export const runtimeOperations: readonly Operation[] = [
  operation('runtimeRpc', '/runtime/rpc'),
  operation('bxmcpRpc', '/~bxmcp/boxlang.bxm'),
]
