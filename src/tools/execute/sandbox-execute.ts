import type { Static } from 'typebox'
import type { Profile } from '../../base/profile.ts'
import { type ExecuteRequest, timeoutLimitSeconds } from '../../core/runs/request.ts'
import { goingOnTools } from '../executions/execution.ts'
import { type Offers, type ToolContext, tool } from '../tool.ts'
import { bytesInWords, secondsInWords } from './ending-words.ts'
import { RunFollower } from './run-follower.ts'
import { SandboxExecuteInput, SandboxExecuteOutput } from './schema.ts'

export const sandboxExecute = tool({
  name: 'sandbox_execute',
  title: 'Run code in a sandbox',
  toolset: 'execute',
  capabilities: ['execute'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
  describe,
  input: SandboxExecuteInput,
  narrow,
  output: SandboxExecuteOutput,
  run: async (caller, input, context) => {
    const { core, toTask } = context
    const { detachAfterMs } = caller.profile.calls
    // A repeat asks for it, whatever became of who asked first.
    const detached = context.detached || input.idempotency_key !== undefined
    const kept = toTask !== undefined || detachAfterMs !== null
    const events = core.execute(caller, { ...toRequest(input, detached), kept }, signalFor(input, context))
    return new RunFollower(events, caller, context, { timings: input.timings === true }).follow(
      toTask ? null : detachAfterMs,
    )
  },
})

/** A call that may be repeated goes on when its client is gone: the repeat will ask for it. */
function signalFor({ idempotency_key }: Static<typeof SandboxExecuteInput>, { signal }: ToolContext): AbortSignal {
  if (idempotency_key === undefined) return signal
  const cancelled = new AbortController()
  const follow = () => {
    if (signal.reason !== 'gone') cancelled.abort(signal.reason)
  }
  if (signal.aborted) follow()
  else signal.addEventListener('abort', follow, { once: true })
  return cancelled.signal
}

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
    subject: input.subject,
    idempotencyKey: input.idempotency_key,
    detached,
  }
}

function describe(profile: Profile, offers: Offers): string {
  const { languages, defaultLanguage, limits } = profile
  const names = languages.map((language) => (language === defaultLanguage ? `${language} (default)` : language))
  return [
    'Execute code in a sandboxed environment and return what it printed, its exit code and how it ended.',
    `Languages: ${names.join(', ')}.`,
    persistence(profile),
    'There is no network.',
    `Limits: ${secondsInWords(defaultTimeoutMs(profile))} unless timeout says otherwise (at most ${maxTimeoutSeconds(profile)} s), ${bytesInWords(limits.memoryBytes)} of memory, ${limits.cpus} CPU, ${bytesInWords(limits.outputSoftBytes)} of output kept per stream.`,
    'The working directory is the home directory; /tmp is writable too.',
    ...goingOn(profile, offers),
  ].join(' ')
}

/** What a model is told of a call that is answered before its run has ended. */
function goingOn({ calls: { detachAfterMs } }: Profile, offers: Offers): string[] {
  if (detachAfterMs === null) return []
  const rest = goingOnTools.some(offers)
    ? ' Its answer says how to go on with it.'
    : ' What it prints after that is not told.'
  return [
    `A run that takes longer than ${secondsInWords(detachAfterMs)} is answered with what it printed so far and goes on by itself.${rest}`,
  ]
}

/** Promises what is there and no more. */
function persistence({ storage }: Profile): string {
  const fresh =
    'Each call starts fresh: no variable, installed package or process of an earlier call exists, so write self-contained code and print what you need.'
  if (storage.kind === 'none') return `${fresh} No file is kept after the call either.`
  const { bytes, inodes } = storage.quota
  return `${fresh} Files in the home directory (/home/baponi) are kept for the next call with the same thread_id, up to ${bytesInWords(bytes)} in ${inodes} files; files elsewhere, and every file of a call without thread_id, are not.`
}

const maxTimeoutSeconds = ({ timeoutMaxMs }: Profile): number =>
  Math.min(timeoutLimitSeconds, Math.floor(timeoutMaxMs / 1000))

const defaultTimeoutMs = ({ timeoutDefaultMs, timeoutMaxMs }: Profile): number =>
  Math.min(timeoutDefaultMs, timeoutMaxMs)

function narrow(input: typeof SandboxExecuteInput, profile: Profile): object {
  const { thread_id: _, ...withoutThreads } = input.properties
  const { language, timeout } = input.properties
  return {
    ...input,
    properties: {
      ...(profile.storage.kind === 'threads' ? input.properties : withoutThreads),
      language: { ...language, enum: profile.languages, default: profile.defaultLanguage },
      timeout: { ...timeout, maximum: maxTimeoutSeconds(profile), default: defaultTimeoutMs(profile) / 1000 },
    },
  }
}
