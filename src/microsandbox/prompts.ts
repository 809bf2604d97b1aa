import { own, type Params } from '../mcp/json-rpc/message.ts'
import { RpcError, rpcCodes } from './errors.ts'

interface Prompt {
  name: string
  description: string
  image: string
  byDefault: string
  language: string
}

const prompts: readonly Prompt[] = [
  {
    name: 'create_python_sandbox',
    description: 'Create a Python development sandbox',
    image: 'microsandbox/python',
    byDefault: 'python-sandbox',
    language: 'Python',
  },
  {
    name: 'create_node_sandbox',
    description: 'Create a Node.js development sandbox',
    image: 'microsandbox/node',
    byDefault: 'node-sandbox',
    language: 'Node.js',
  },
]

export const promptListings = prompts.map(({ name, description, language }) => ({
  name,
  description,
  arguments: [
    { name: 'sandbox_name', description: `Name of the new ${language} sandbox`, required: true },
    { name: 'namespace', description: 'Namespace of the sandbox', required: false },
  ],
}))

/** Returns a prompt. @throws RpcError for an unknown name. */
export function getPrompt(params: Params): object {
  const name = own(params, 'name')
  if (typeof name !== 'string') throw new RpcError(200, rpcCodes.internal, 'MCP method error: Missing prompt name')
  const prompt = prompts.find((known) => known.name === name)
  if (!prompt) throw new RpcError(200, rpcCodes.internal, `MCP method error: Unknown prompt: ${name}`)
  const given = (own(params, 'arguments') ?? {}) as Params
  const textOf = (field: string, otherwise: string) => {
    const value = typeof given === 'object' ? own(given, field) : undefined
    return typeof value === 'string' && value !== '' ? value : otherwise
  }
  const sandbox = textOf('sandbox_name', prompt.byDefault)
  const namespace = textOf('namespace', 'default')
  const config = { image: prompt.image, memory: 512, cpus: 1, workdir: '/workspace' }
  const call = JSON.stringify({ sandbox, namespace, config }, null, 2)
  const text = `Create a ${prompt.language} sandbox: call sandbox_start with these arguments:\n\n${call}`
  return { description: prompt.description, messages: [{ role: 'user', content: { type: 'text', text } }] }
}
