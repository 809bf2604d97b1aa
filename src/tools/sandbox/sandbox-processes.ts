import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { ProcessStatus } from '../../base/sandbox.ts'
import { tool } from '../tool.ts'
import { target, textResult, toRef } from './arguments.ts'
import { describeEnding } from './endings.ts'
import { environmentArgument, shortened } from './sandbox-run-command.ts'

const actions = ['list', 'start', 'output', 'write', 'signal', 'remove'] as const
const waitMaxSeconds = 50

export const sandboxProcesses = tool({
  name: 'sandbox_processes',
  title: 'Manage background processes of a sandbox',
  toolset: 'sandbox',
  capabilities: ['sandboxes.execute'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  describe: () =>
    'Manage background processes of a sandbox, such as servers. Actions: start (command, args) returns a process number; output returns what it wrote after cursor and can wait for more; write sends text to its standard input; signal ends it with TERM or KILL; list shows all; remove forgets an ended one.',
  input: Type.Object(
    {
      ...target,
      action: Type.Unsafe<(typeof actions)[number]>({ type: 'string', enum: [...actions] }),
      process_id: Type.Optional(Type.Integer({ minimum: 1, description: 'Number of the process.' })),
      command: Type.Optional(Type.String({ description: 'For start: program to run, without a shell.' })),
      args: Type.Optional(Type.Array(Type.String(), { description: 'For start.' })),
      cwd: Type.Optional(Type.String({ description: 'For start: absolute path.' })),
      env_vars: environmentArgument,
      cursor: Type.Optional(Type.Integer({ minimum: 0, description: 'For output: from the previous result.' })),
      wait: Type.Optional(
        Type.Number({ minimum: 0, maximum: waitMaxSeconds, description: 'For output: seconds to wait for output.' }),
      ),
      data: Type.Optional(Type.String({ description: 'For write.' })),
      close: Type.Optional(Type.Boolean({ description: 'For write: close standard input afterwards.' })),
      signal: Type.Optional(Type.String({ description: 'For signal: TERM by default.' })),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, given, { core, signal }) => {
    const ref = toRef(given)
    const { sandboxProcesses: processes } = core
    switch (given.action) {
      case 'list': {
        const lines = (await processes.list(caller, ref)).map(describeProcess)
        return textResult(lines.join('\n') || 'There are no processes.')
      }
      case 'start': {
        const { command = missing('command'), args, cwd, env_vars: env } = given
        const status = await processes.start(caller, ref, { command, args, cwd, env, stdin: true })
        return textResult(describeProcess(status), status.ending?.kind === 'not_started')
      }
      case 'output': {
        const { cursor = 0, wait = 0 } = given
        const number = given.process_id ?? missing('process_id')
        const polled = await processes.poll(caller, ref, number, { cursor, waitMs: wait * 1_000, signal })
        const text = polled.pieces.map(({ text }) => text).join('')
        const state = polled.ending
          ? `It ${describeEnding(polled.ending)}.`
          : `It is running; next cursor: ${polled.cursor}.`
        return textResult(`${shortened(text, caller.profile.calls.mcpOutputCharacters)}\n${state}`)
      }
      case 'write': {
        const { data = '', close = false } = given
        const number = given.process_id ?? missing('process_id')
        if (data !== '') await processes.write(caller, ref, number, Buffer.from(data), signal)
        if (close && !signal.aborted) await processes.closeStdin(caller, ref, number)
        return textResult(close ? 'Written, and standard input is closed.' : 'Written.')
      }
      case 'signal': {
        const { signal: name = 'TERM' } = given
        const number = given.process_id ?? missing('process_id')
        await processes.signal(caller, ref, number, name)
        return textResult(`Sent ${name} to process ${number}.`)
      }
      case 'remove': {
        const number = given.process_id ?? missing('process_id')
        await processes.forget(caller, ref, number)
        return textResult(`Process ${number} is gone.`)
      }
    }
  },
})

function missing(field: string): never {
  throw new Refusal('invalid_argument', { field, problem: 'is required for this action' })
}

function describeProcess({ processId, argv, ending }: ProcessStatus): string {
  return `process ${processId}: ${shortened(argv.join(' '), 200)}, ${ending ? describeEnding(ending) : 'running'}`
}
