import type { Static } from 'typebox'
import type { Profile } from '../../base/profile.ts'
import type { ExecuteEvent } from '../../core/execute.ts'
import { Fold } from '../../core/fold.ts'
import { LiveText } from '../../core/live-text.ts'
import { type ExecuteRequest, timeoutLimitSeconds } from '../../core/request.ts'
import { tool } from '../tool.ts'
import { bytesInWords, secondsInWords } from './ending-words.ts'
import { toToolResult } from './result.ts'
import { SandboxExecuteInput, SandboxExecuteOutput } from './schema.ts'

export const sandboxExecute = tool({
  name: 'sandbox_execute',
  title: 'Run code in a sandbox',
  toolset: 'execute',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
  describe,
  input: SandboxExecuteInput,
  narrow,
  output: SandboxExecuteOutput,
  run: async (caller, input, { core, signal, detached, started, progress }) => {
    const fold = new Fold()
    const live = progress && new LiveText()
    for await (const event of core.execute(caller, toRequest(input, detached), signal)) {
      fold.add(event)
      if (event.kind === 'accepted') started?.()
      if (live) for (const message of textOf(event, live)) await progress({ message })
    }
    return toToolResult(fold.finish())
  },
})

/** The wire's names in core's words; also the body of the REST route. */
export function toRequest(input: Static<typeof SandboxExecuteInput>, detached: boolean): ExecuteRequest {
  return {
    code: input.code,
    language: input.language,
    timeoutSeconds: input.timeout,
    threadId: input.thread_id,
    metadata: input.metadata,
    env: input.env_vars,
    stdin: input.stdin,
    detached,
  }
}

/** What of an event is worth telling while the run goes on. */
function textOf(event: ExecuteEvent, live: LiveText): string[] {
  switch (event.kind) {
    case 'accepted':
    case 'recorded':
    case 'running':
      return []
    case 'output':
      return [live.add(event.stream, event.bytes)].filter((text) => text !== '')
    case 'gap':
      return [`${live.flush(event.stream)}\n[… ${event.bytes} bytes left out …]\n`]
    case 'ended':
      return [live.flush('stdout') + live.flush('stderr')].filter((text) => text !== '')
  }
}

function describe(profile: Profile): string {
  const { languages, defaultLanguage, limits } = profile
  const names = languages.map((language) => (language === defaultLanguage ? `${language} (default)` : language))
  return [
    'Execute code in a sandboxed environment and return what it printed, its exit code and how it ended.',
    `Languages: ${names.join(', ')}.`,
    'Each call starts fresh: no variable, file, installed package or process of an earlier call exists, and nothing is kept after the call, so write self-contained code and print what you need.',
    'There is no network.',
    `Limits: ${secondsInWords(defaultTimeoutMs(profile))} unless timeout says otherwise (at most ${maxTimeoutSeconds(profile)} s), ${bytesInWords(limits.memoryBytes)} of memory, ${limits.cpus} CPU, ${bytesInWords(limits.outputSoftBytes)} of output kept per stream.`,
    'The working directory is the home directory; /tmp is writable too.',
  ].join(' ')
}

const maxTimeoutSeconds = ({ timeoutMaxMs }: Profile): number =>
  Math.min(timeoutLimitSeconds, Math.floor(timeoutMaxMs / 1000))

const defaultTimeoutMs = ({ timeoutDefaultMs, timeoutMaxMs }: Profile): number =>
  Math.min(timeoutDefaultMs, timeoutMaxMs)

function narrow(input: typeof SandboxExecuteInput, profile: Profile): object {
  const { language, timeout } = input.properties
  return {
    ...input,
    properties: {
      ...input.properties,
      language: { ...language, enum: profile.languages, default: profile.defaultLanguage },
      timeout: { ...timeout, maximum: maxTimeoutSeconds(profile), default: defaultTimeoutMs(profile) / 1000 },
    },
  }
}
