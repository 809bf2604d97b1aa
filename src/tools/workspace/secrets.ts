import Type from 'typebox'
import { tool } from '../tool.ts'

const annotations = { readOnlyHint: true, destructiveHint: false, idempotentHint: true } as const

export const secretTool = tool({
  name: 'secret',
  title: 'Get a secret',
  toolset: 'workspace',
  capabilities: ['workspaces.read'],
  // It returns what every other tool hides.
  redacted: false,
  annotations,
  describe: () =>
    'Return the value of a variable that the operator has set for this key, for use in a command; of a secret for the network its placeholder, which the server replaces in requests. Programs in the sandbox have it in their environment as well. Each call is recorded in the audit log.',
  input: Type.Object(
    { name: Type.String({ minLength: 1, maxLength: 128, description: 'Name of the variable, in any case.' }) },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, { name }, { core }) => {
    const value = await core.workspaces.secret(caller, name)
    if (value !== undefined) return { content: [{ type: 'text', text: value }], isError: false }
    const text = `unknown secret: ${name}; call secrets_available for the names`
    return { content: [{ type: 'text', text }], isError: true }
  },
})

export const secretsAvailableTool = tool({
  name: 'secrets_available',
  title: 'List the names of secrets',
  toolset: 'workspace',
  capabilities: ['workspaces.read'],
  annotations,
  describe: () => 'List the names of the variables that the operator has set for this key, without their values.',
  input: Type.Object({}, { additionalProperties: false }),
  narrow: (input) => input,
  run: async (caller, _input, { core }) => {
    const names = await core.workspaces.secrets(caller)
    return { content: [{ type: 'text', text: names.join('\n') || 'no secrets' }], isError: false }
  },
})
