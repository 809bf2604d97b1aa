import Type from 'typebox'
import { tool } from '../tool.ts'
import { target, textResult, toRef } from './arguments.ts'
import { describeEnding } from './endings.ts'

export const environmentArgument = Type.Optional(
  Type.Unsafe<Record<string, string>>({ type: 'object', additionalProperties: { type: 'string' } }),
)

/** Keeps the beginning and the end of a text that is too long for a result. */
export function shortened(text: string, characters: number): string {
  if (text.length <= characters) return text
  const half = Math.floor(characters / 2)
  const omitted = text.length - 2 * half
  return `${text.slice(0, half).toWellFormed()}\n… ${omitted} characters omitted …\n${text.slice(-half).toWellFormed()}`
}

export const sandboxRunCommand = tool({
  name: 'sandbox_run_command',
  title: 'Run a command in a sandbox',
  toolset: 'sandbox',
  capabilities: ['sandboxes.execute'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  describe: ({ timeoutDefaultMs }) =>
    `Run a program in a running sandbox and wait until it ends, ${timeoutDefaultMs / 1_000} s by default. There is no shell: pass each argument in args. For pipes, redirections or variables run bash with args ["-c", "…"].`,
  input: Type.Object(
    {
      ...target,
      command: Type.String({ description: 'Program to run, for example "ls".' }),
      args: Type.Optional(Type.Array(Type.String(), { description: 'Its arguments, for example ["-la", "/tmp"].' })),
      timeout: Type.Optional(Type.Number({ exclusiveMinimum: 0, description: 'Seconds.' })),
      cwd: Type.Optional(Type.String({ description: 'Absolute path of its working directory.' })),
      env_vars: environmentArgument,
      stdin: Type.Optional(Type.String({ description: 'Standard input; empty by default.' })),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, given, { core, signal }) => {
    const { sandbox: _, namespace: __, timeout, env_vars, stdin, ...command } = given
    const input = stdin === undefined ? undefined : Buffer.from(stdin)
    const timeoutMs = timeout === undefined ? undefined : timeout * 1_000
    const asked = { ...command, env: env_vars, timeoutMs, stdin: input }
    const { ending, stdout, stderr, outputLimitBytes } = await core.sandboxProcesses.run(
      caller,
      toRef(given),
      asked,
      signal,
    )
    const isFine = ending.kind === 'exited' && ending.code === 0
    const half = caller.profile.calls.mcpOutputCharacters / 2
    const parts = [shortened(stdout, half)]
    if (stderr !== '') parts.push(`stderr:\n${shortened(stderr, half)}`)
    if (outputLimitBytes !== undefined)
      parts.push(`The command wrote more than ${outputLimitBytes} bytes and was killed.`)
    if (!isFine) parts.push(`The command ${describeEnding(ending)}.`)
    const text = parts.filter((part) => part !== '').join('\n')
    return textResult(text === '' ? 'The command exited with code 0 and wrote nothing.' : text, !isFine)
  },
})
