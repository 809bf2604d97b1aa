import type { Static } from 'typebox'
import type { Profile } from '../../base/profile.ts'
import { toLanguage } from '../../base/run.ts'
import type { Software } from '../../base/software.ts'
import type { Caller } from '../../core/caller.ts'
import { type ExecuteRequest, timeoutLimitSeconds } from '../../core/runs/request.ts'
import { followUpTools } from '../executions/execution.ts'
import { softwareInWords } from '../software.ts'
import { disconnectReason, type Offers, type ToolContext, tool } from '../tool.ts'
import { bytesInWords, secondsInWords } from './ending-words.ts'
import { restTool } from './rest-of-output.ts'
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
  aliases: { language: toLanguage },
  narrow,
  output: SandboxExecuteOutput,
  run: async (caller, input, context) => {
    const { core, toTask } = context
    const { detachAfterMs } = caller.profile.calls
    // A repeated call may fetch the run after the first client has disconnected.
    const detached = context.detached || input.idempotency_key !== undefined
    const kept = toTask !== undefined || detachAfterMs !== null
    const request = { ...toRequest(input, detached), kept, ...keptBeyond(caller, context) }
    const events = core.execute(caller, request, signalFor(input, context))
    const asked = { timings: input.timings === true, network: input.network === true }
    return new RunFollower(events, caller, context, asked).follow(toTask ? null : detachAfterMs)
  },
})

/** Output that this call returns only in part, and images that it links to, can be fetched later. */
const keptBeyond = ({ profile }: Caller, { offers, linksImages }: ToolContext) =>
  offers(restTool) ? { keptBeyondBytes: profile.calls.mcpOutputCharacters, keptWithImages: linksImages } : {}

/** A run with an idempotency key is not cancelled when its client disconnects, since a repeated call can fetch it. */
function signalFor({ idempotency_key }: Static<typeof SandboxExecuteInput>, { signal }: ToolContext): AbortSignal {
  if (idempotency_key === undefined) return signal
  const cancelled = new AbortController()
  const follow = () => {
    if (signal.reason !== disconnectReason) cancelled.abort(signal.reason)
  }
  if (signal.aborted) follow()
  else signal.addEventListener('abort', follow, { once: true })
  return cancelled.signal
}

/** Converts the arguments of the tool, which are also the body of the REST operation, to a request to core. */
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

function describe(profile: Profile, offers: Offers, software: Software): string {
  const { languages, defaultLanguage, limits } = profile
  const names = languages.map((language) => (language === defaultLanguage ? `${language} (default)` : language))
  return [
    'Execute code in a sandboxed environment and return its output, its exit code and how it ended.',
    `Languages: ${names.join(', ')}.`,
    persistence(profile),
    ...softwareInWords(profile, software),
    networkInWords(profile),
    `Limits: ${secondsInWords(defaultTimeoutMs(profile))} by default (at most ${maxTimeoutSeconds(profile)} s with timeout), ${bytesInWords(limits.memoryBytes)} of memory, ${limits.cpus} CPU, ${bytesInWords(limits.outputSoftBytes)} of output kept per stream.`,
    'The working directory is the home directory; /tmp is writable too.',
    ...detaching(profile, offers),
  ].join(' ')
}

/** Describes what a program can reach, so that a model does not try anything else. */
function networkInWords({ network }: Profile): string {
  if (network === undefined) return 'There is no network, so nothing can be installed or downloaded.'
  switch (network.policy) {
    case 'packages':
      return 'The network reaches package indexes only: pip install and npm install work, for one call or in the home directory of a thread.'
    case 'allow':
      return `The network reaches only ${listInWords(network.rules)}.`
    case 'public':
      return 'The network reaches public addresses: pip install, npm install and downloads work.'
  }
}

const rulesInWords = 12

const listInWords = (rules: readonly string[]): string =>
  rules.length <= rulesInWords ? rules.join(', ') : `${rules.slice(0, rulesInWords).join(', ')} and other destinations`

/** Describes calls that return before their run has ended. */
function detaching({ calls: { detachAfterMs } }: Profile, offers: Offers): string[] {
  if (detachAfterMs === null) return []
  const rest = followUpTools.some(offers)
    ? ' The result says how to continue with it.'
    : ' Its later output cannot be fetched.'
  return [
    `A call that takes longer than ${secondsInWords(detachAfterMs)} returns partial output; the run continues in the background.${rest}`,
  ]
}

/** Describes what is kept between calls. */
function persistence({ storage }: Profile): string {
  const fresh =
    'Each call starts fresh: variables, installed packages and processes of earlier calls are gone, so write self-contained code and print what you need: the value of the last expression is not shown.'
  if (storage.kind === 'none') return `${fresh} Files are not kept after the call either.`
  const { bytes, inodes } = storage.quota
  return `${fresh} Files in the home directory (/home/baponi) are kept for the next call with the same thread_id, up to ${bytesInWords(bytes)} in ${inodes} files; files elsewhere, and every file of a call without thread_id, are not.`
}

const maxTimeoutSeconds = ({ timeoutMaxMs }: Profile): number =>
  Math.min(timeoutLimitSeconds, Math.floor(timeoutMaxMs / 1000))

const defaultTimeoutMs = ({ timeoutDefaultMs, timeoutMaxMs }: Profile): number =>
  Math.min(timeoutDefaultMs, timeoutMaxMs)

function narrow(input: typeof SandboxExecuteInput, profile: Profile): object {
  const { thread_id, network, ...always } = input.properties
  const { language, timeout } = input.properties
  return {
    ...input,
    properties: {
      ...always,
      ...(profile.storage.kind === 'threads' && { thread_id }),
      ...(profile.network && { network }),
      language: { ...language, enum: profile.languages, default: profile.defaultLanguage },
      timeout: { ...timeout, maximum: maxTimeoutSeconds(profile), default: defaultTimeoutMs(profile) / 1000 },
    },
  }
}
