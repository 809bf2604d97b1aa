import Type from 'typebox'
import type { Core } from '../../core/core.ts'
import { type Tool, tool } from '../tool.ts'
import { describeSandbox, target, textResult, toRef } from './arguments.ts'

const input = Type.Object(target, { additionalProperties: false })

type Verb = 'stop' | 'restart' | 'pause' | 'resume'

/** A tool that changes the state of a sandbox. */
const common = {
  toolset: 'sandbox',
  capabilities: ['sandboxes.write'],
  input,
  narrow: (given: typeof input) => given,
} as const

const changed =
  (verb: Verb) =>
  async (
    caller: Parameters<Core['sandboxes'][Verb]>[0],
    given: { sandbox: string; namespace?: string },
    { core }: { core: Core },
  ) =>
    textResult(`Sandbox ${describeSandbox(await core.sandboxes[verb](caller, toRef(given)))}.`)

export const sandboxStop: Tool = tool({
  ...common,
  name: 'sandbox_stop',
  title: 'Stop a sandbox',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true },
  describe: () => 'Stop a sandbox. Its processes and variables end; its files are kept for the next start.',
  run: changed('stop'),
})

export const sandboxRestart: Tool = tool({
  ...common,
  name: 'sandbox_restart',
  title: 'Restart a sandbox',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
  describe: () => 'Stop a sandbox and start it again, for example if a process hangs. Its files are kept.',
  run: changed('restart'),
})

export const sandboxPause: Tool = tool({
  ...common,
  name: 'sandbox_pause',
  title: 'Pause a sandbox',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true },
  describe: () => 'Freeze all processes of a sandbox. It uses no processor time until sandbox_resume.',
  run: changed('pause'),
})

export const sandboxResume: Tool = tool({
  ...common,
  name: 'sandbox_resume',
  title: 'Resume a sandbox',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true },
  describe: () => 'Continue a paused sandbox.',
  run: changed('resume'),
})
