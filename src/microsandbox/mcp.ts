import { Refusal } from '../base/errors.ts'
import { isObject, own, type Params } from '../mcp/json-rpc/message.ts'
import { RpcError, rpcCodes } from './errors.ts'
import { callMethod, type RpcContext, runCode } from './methods.ts'
import { getPrompt, promptListings } from './prompts.ts'

/** Versions of MCP that clients of this door may use; the first is that of microsandbox. */
const versions = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'] as const

/** How the results of tools are written: as the documentation of microsandbox shows them, or as its server does. */
export type ResultForm = 'text' | 'json'

const names = { sandbox: { type: 'string' }, namespace: { type: 'string' } } as const
const texts = { type: 'array', items: { type: 'string' } } as const

interface Tool {
  name: string
  description: string
  inputSchema: object
}

const tool = (name: string, description: string, properties: object, required: readonly string[]): Tool => ({
  name,
  description,
  inputSchema: { type: 'object', properties, ...(required.length > 0 && { required }) },
})

/** The JSON-RPC method that each tool calls. */
const methodOf: Readonly<Record<string, string>> = {
  sandbox_start: 'sandbox.start',
  sandbox_stop: 'sandbox.stop',
  sandbox_run_code: 'sandbox.repl.run',
  sandbox_run_command: 'sandbox.command.run',
  sandbox_get_metrics: 'sandbox.metrics.get',
}

/** How an error of each tool begins, where microsandbox gives it a beginning. */
const failureOf: Readonly<Record<string, string>> = {
  sandbox_start: 'Sandbox start failed: ',
  sandbox_stop: 'Sandbox stop failed: ',
  sandbox_get_metrics: 'Get metrics failed: ',
}

export const toolListings: readonly Tool[] = [
  tool(
    'sandbox_start',
    'Start a new sandbox',
    {
      name: { type: 'string', description: 'Name of the sandbox' },
      image: { type: 'string', description: 'Image of the sandbox; the default one if it is absent' },
      namespace: { type: 'string', description: 'Namespace of the sandbox; "default" if it is absent' },
      sandbox: { type: 'string', description: 'Another name of "name"' },
      config: {
        type: 'object',
        description: 'Settings of the sandbox',
        properties: {
          image: { type: 'string' },
          memory: { type: 'integer', description: 'Memory in MiB' },
          cpus: { type: 'integer' },
          ...{ volumes: texts, ports: texts, envs: texts },
          workdir: { type: 'string' },
        },
      },
    },
    [],
  ),
  tool('sandbox_stop', 'Stop a running sandbox', names, ['sandbox']),
  tool(
    'sandbox_run_code',
    'Execute code in a running sandbox. Variables are kept for the next call.',
    {
      ...names,
      code: { type: 'string' },
      language: { type: 'string', description: 'python, nodejs or bash' },
      timeout: { type: 'number', description: 'Seconds' },
    },
    ['sandbox', 'code', 'language'],
  ),
  tool(
    'sandbox_run_command',
    'Execute a command in a running sandbox. There is no shell: pass arguments in args.',
    {
      ...names,
      command: { type: 'string', description: 'Program' },
      args: { ...texts, description: 'Its arguments' },
      timeout: { type: 'number', description: 'Seconds' },
    },
    ['sandbox', 'command'],
  ),
  tool('sandbox_get_metrics', 'Get metrics of one sandbox, or of all sandboxes', names, []),
]

/** Whether a method belongs to MCP and not to the methods of microsandbox. */
export const isMcpMethod = (method: string): boolean =>
  method === 'initialize' || method === 'ping' || method.includes('/')

/** Answers a method of MCP. @throws RpcError, Refusal. */
export async function callMcp(context: RpcContext, method: string, params: Params, form: ResultForm): Promise<object> {
  switch (method) {
    case 'initialize': {
      const protocolVersion = versions.find((version) => version === params.protocolVersion) ?? versions[0]
      return {
        protocolVersion,
        capabilities: { tools: {}, prompts: {} },
        serverInfo: { name: 'microsandbox', version: '1.0.0' },
      }
    }
    case 'ping':
      return {}
    case 'tools/list':
      return { tools: toolListings }
    case 'prompts/list':
      return { prompts: promptListings }
    case 'prompts/get':
      return getPrompt(params)
    case 'tools/call':
      return callTool(context, params, form)
    case 'server/discover':
      // Clients of a later MCP ask this first, and fall back to `initialize`.
      throw new RpcError(404, rpcCodes.methodNotFound, `Method not found: ${method}`)
    default:
      throw new RpcError(200, rpcCodes.internal, `MCP method error: Method not found: ${method}`)
  }
}

async function callTool(context: RpcContext, params: Params, form: ResultForm): Promise<object> {
  const name = own(params, 'name')
  if (typeof name !== 'string') throw new RpcError(200, rpcCodes.internal, 'MCP method error: Missing tool name')
  const method = Object.hasOwn(methodOf, name) ? methodOf[name] : undefined
  if (method === undefined) throw new RpcError(200, rpcCodes.internal, `MCP method error: Unknown tool: ${name}`)
  const given = own(params, 'arguments')
  if (!isObject(given)) throw new RpcError(200, rpcCodes.internal, 'MCP method error: Missing tool arguments')
  // Clients send the namespace in the arguments, or beside them.
  const namespace = own(given, 'namespace') ?? own(params, 'namespace')
  const input = { ...given, ...(namespace !== undefined && { namespace }) }
  try {
    if (method === 'sandbox.repl.run' && form === 'text') return textResult((await runCode(context, input)).text)
    return textResult(JSON.stringify(await callMethod(context, method, input), null, 2))
  } catch (error) {
    if (!(error instanceof Refusal || error instanceof RpcError)) throw error
    const advice = error instanceof Refusal ? ` ${error.hint}` : ''
    return { ...textResult(`Error: ${failureOf[name] ?? ''}${error.message}${advice}`), isError: true }
  }
}

const textResult = (text: string) => ({ content: [{ type: 'text', text }] })
