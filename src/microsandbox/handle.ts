import { Refusal } from '../base/errors.ts'
import { parseJson } from '../base/json.ts'
import { type Params, parseMessage, type RequestId } from '../mcp/json-rpc/message.ts'
import { errorObjectOf, RpcError, rpcCodes } from './errors.ts'
import { callMcp, isMcpMethod, type ResultForm } from './mcp.ts'
import { callMethod, type RpcContext } from './methods.ts'

/** An HTTP answer; without a body it is empty. */
export interface RpcReply {
  status: number
  body?: object
}

/**
 * BOUNDARY: answers one message of microsandbox's JSON-RPC or of MCP, which share a path.
 * @throws Refusal, which is answered as an HTTP error.
 */
export async function handleRpc(context: RpcContext, sent: Buffer, form: ResultForm): Promise<RpcReply> {
  const message = parseMessage(parseJson(sent))
  switch (message.kind) {
    case 'invalid':
      return { status: 400, body: errorOf(message.id, rpcCodes.invalidRequest, message.refusal.message) }
    case 'response':
      return { status: 202 }
    case 'notification':
      // MCP has notifications that need no action; a call without an ID runs, and its result is not returned.
      if (isMcpMethod(message.method)) return { status: 202 }
      return withoutId(async () => {
        await callMethod(context, message.method, message.params)
        return { status: 200 }
      })
    case 'request':
      return answer(message.id, () => resultOf(context, message.method, message.params, form))
  }
}

/**
 * Answers a call whose path names the method, as later clients of microsandbox send it: with the parameters as the body,
 * or with a whole JSON-RPC message.
 */
export async function handleAlias(context: RpcContext, method: string, sent: Buffer): Promise<RpcReply> {
  const body = parseJson(sent)
  if (typeof body === 'object' && body !== null && 'jsonrpc' in body) {
    const message = parseMessage({ ...body, method })
    if (message.kind === 'request') return answer(message.id, () => callMethod(context, method, message.params))
    const { refusal } =
      message.kind === 'invalid' ? message : { refusal: new Refusal('invalid_request', { problem: 'id is missing' }) }
    return { status: 400, body: errorOf(null, rpcCodes.invalidRequest, refusal.message) }
  }
  return withoutId(async () => ({
    status: 200,
    body: { result: await callMethod(context, method, (body ?? {}) as Params) },
  }))
}

/** Answers a call that has no ID with an HTTP error if it fails. */
async function withoutId(call: () => Promise<RpcReply>): Promise<RpcReply> {
  try {
    return await call()
  } catch (error) {
    if (!(error instanceof RpcError)) throw error
    return { status: Math.max(error.status, 400), body: errorObjectOf(error) }
  }
}

const resultOf = async (context: RpcContext, method: string, params: Params, form: ResultForm): Promise<unknown> =>
  isMcpMethod(method) ? callMcp(context, method, params, form) : callMethod(context, method, params)

async function answer(id: RequestId, call: () => Promise<unknown>): Promise<RpcReply> {
  try {
    return { status: 200, body: { jsonrpc: '2.0', result: await call(), id } }
  } catch (error) {
    if (!(error instanceof RpcError)) throw error
    return { status: error.status, body: errorOf(id, error.code, error.message) }
  }
}

const errorOf = (id: RequestId | null, code: number, message: string) => ({
  jsonrpc: '2.0',
  error: { code, message },
  id,
})
