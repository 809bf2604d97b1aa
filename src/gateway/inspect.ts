import type { Agent, RequestInit as UndiciRequestInit } from 'undici'
import { fetch } from 'undici'
import { Refusal } from '../base/errors.ts'
import type { UpstreamListing, UpstreamTool } from '../core/upstreams/listing.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'
import { Credentials, redactSecrets } from './credentials.ts'
import { toRefusal, UpstreamProblem, UpstreamTimeout } from './failures.ts'

/** Maximum number of pages of one list, since a server can return pages without end. */
const pagesMax = 64
/** Maximum number of tools, of prompts and of resources of one upstream. */
const itemsMax = 2_000
/** Maximum size of the whole listing as JSON. */
const listingMaxBytes = 4 * 1024 * 1024
/** Maximum total size of the responses. */
const receivedMaxBytes = 16 * 1024 * 1024

/**
 * Connects to an upstream of any protocol version and reads all of its tools, prompts and resources.
 * @param version version of this server, which the upstream receives.
 * @throws Refusal `upstream_failed`, `upstream_timeout`, `upstream_misconfigured`.
 */
export async function inspectUpstream(agent: Agent, version: string, target: UpstreamTarget): Promise<UpstreamListing> {
  const timeout = new AbortController()
  const timer = setTimeout(() => timeout.abort(new UpstreamTimeout()), target.timeoutMs)
  try {
    return await within(timeout.signal, inspect(agent, version, target, timeout.signal))
  } catch (error) {
    const refusal = toRefusal(timeout.signal.aborted ? timeout.signal.reason : problemOf(error), target)
    throw new Refusal(refusal.code, { ...refusal.details, ...redactedProblem(refusal, target) })
  } finally {
    clearTimeout(timer)
    timeout.abort()
  }
}

/** Errors of the client library describe the upstream. Those with a code, a refusal inside or a cause keep it. */
function problemOf(error: unknown): unknown {
  const { code, cause, message } = error as NodeJS.ErrnoException
  if (error instanceof Refusal || typeof code === 'string' || !(error instanceof Error)) return error
  return cause instanceof Error ? problemOf(cause) : new UpstreamProblem(message)
}

const redactedProblem = ({ details: { problem } }: Refusal, target: UpstreamTarget) =>
  typeof problem === 'string' ? { problem: redactSecrets(problem, target).slice(0, 300) } : {}

/** Resolves with the promise, or rejects with the reason of the signal if it aborts first. */
function within<T>(signal: AbortSignal, coming: Promise<T>): Promise<T> {
  coming.catch(() => {})
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
    coming.then(resolve, reject)
  })
}

async function inspect(
  agent: Agent,
  version: string,
  target: UpstreamTarget,
  signal: AbortSignal,
): Promise<UpstreamListing> {
  // Loaded on first use: the package is large, and runs do not need it.
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client')
  const { url, headers } = new Credentials().authorize(target)
  const client = new Client(
    { name: 'glovebox', version },
    { versionNegotiation: { mode: 'auto' }, listMaxPages: pagesMax },
  )
  const transport = new StreamableHTTPClientTransport(url, {
    requestInit: { headers, redirect: 'error' },
    fetch: boundedFetch(agent, signal),
  })
  try {
    await client.connect(transport)
    const { tools, prompts, resources } = client.getServerCapabilities() ?? {}
    const server = client.getServerVersion()
    const listing: UpstreamListing = {
      tools: tools ? (await client.listTools()).tools.map(toTool) : [],
      prompts: prompts
        ? (await client.listPrompts()).prompts.map(({ name, description }) => ({ name, ...described(description) }))
        : [],
      resources: resources
        ? (await client.listResources()).resources.map(({ name, description, uri }) => ({
            ...{ name, uri, ...described(description) },
          }))
        : [],
      server: `${server?.name ?? ''} ${server?.version ?? ''}`.trim().slice(0, 128),
    }
    return checked(listing)
  } finally {
    await client.close().catch(() => {})
  }
}

/** A tool as the MCP client returns it. */
type ListedTool = { [Name in keyof UpstreamTool]: UpstreamTool[Name] | undefined } & Pick<
  UpstreamTool,
  'name' | 'inputSchema'
>

function toTool({ name, title, description, inputSchema, outputSchema, annotations }: ListedTool): UpstreamTool {
  return {
    ...{ name, inputSchema, ...described(description) },
    ...(title !== undefined && { title }),
    ...(outputSchema !== undefined && { outputSchema }),
    ...(annotations !== undefined && { annotations }),
  }
}

const described = (description: string | undefined) => (description === undefined ? {} : { description })

function checked(listing: UpstreamListing): UpstreamListing {
  for (const kind of ['tools', 'prompts', 'resources'] as const) {
    if (listing[kind].length > itemsMax) throw new Error(`it has more than ${itemsMax} ${kind}`)
  }
  const names = listing.tools.map(({ name }) => name)
  if (new Set(names).size < names.length) throw new Error('two of its tools have the same name')
  if (Buffer.byteLength(JSON.stringify(listing)) > listingMaxBytes) {
    throw new Error(`the descriptions of its tools exceed ${listingMaxBytes} bytes`)
  }
  return listing
}

/** Returns a `fetch` that connects with `agent` and fails after `receivedMaxBytes` in total. */
function boundedFetch(agent: Agent, signal: AbortSignal): typeof globalThis.fetch {
  let receivedBytes = 0
  const bounded = async (url: string | URL, init: UndiciRequestInit = {}) => {
    const signals = init.signal ? AbortSignal.any([init.signal, signal]) : signal
    const response = await fetch(url, { ...init, signal: signals, dispatcher: agent })
    const counted = response.body?.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform(piece, controller) {
          receivedBytes += piece.length
          if (receivedBytes > receivedMaxBytes) controller.error(new Error('its responses are too large'))
          else controller.enqueue(piece)
        },
      }),
    )
    const { status, statusText, headers } = response
    return new Response((counted as ReadableStream | undefined) ?? null, {
      ...{ status, statusText, headers: [...headers] as [string, string][] },
    })
  }
  return bounded as unknown as typeof globalThis.fetch
}
