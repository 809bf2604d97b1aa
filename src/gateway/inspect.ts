import type { Client } from '@modelcontextprotocol/client'
import type { Agent } from 'undici'
import { Refusal } from '../base/errors.ts'
import type { UpstreamListing, UpstreamPrompt, UpstreamResource, UpstreamTool } from '../core/upstreams/listing.ts'
import type { UpstreamProcess } from '../core/upstreams/programs/program-process.ts'
import { toProgramTarget } from '../core/upstreams/programs/sandbox-spec.ts'
import { redactSecrets } from '../core/upstreams/redact-secrets.ts'
import type { StoredCredentials } from '../core/upstreams/stored-credentials.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'
import { boundedFetch } from './bounded-fetch.ts'
import { Credentials } from './credentials.ts'
import { modernVersion } from './eras/messages.ts'
import { toRefusal, UpstreamProblem, UpstreamTimeout } from './failures.ts'
import { AccessTokens } from './oauth/access-tokens.ts'
import type { ProgramHost } from './stdio/connector.ts'
import { ProcessTransport } from './stdio/transport.ts'

/** Maximum number of pages of one list, since a server can return pages without end. */
const pagesMax = 64
/** Maximum number of tools, of prompts and of resources of one upstream. */
const itemsMax = 2_000
/** Maximum size of the whole listing as JSON. */
const listingMaxBytes = 4 * 1024 * 1024
/** Maximum total size of the responses. */
const receivedMaxBytes = 16 * 1024 * 1024
/** Longest description of a problem, in characters. */
const problemMax = 500

/**
 * Connects to an upstream of any protocol version and reads all of its tools, prompts and resources.
 * @param version version of this server, which the upstream receives.
 * @param credentials contains the tokens of logins.
 * @param programs starts upstreams that are programs.
 * @throws Refusal `upstream_failed`, `upstream_timeout`, `upstream_misconfigured`, `upstream_login_required`,
 * `upstream_login_failed`.
 */
export async function inspectUpstream(
  agent: Agent,
  version: string,
  given: UpstreamTarget,
  credentials: StoredCredentials,
  programs: ProgramHost,
): Promise<UpstreamListing> {
  if (given.transport === 'stdio') return inspectProgram(version, given, programs)
  const target = await new AccessTokens(credentials, agent).authorized(given)
  return timed(target, (signal) => inspect(agent, version, target, signal))
}

/** Reads what a program offers, in the newer version of the protocol if it refuses the older ones. */
async function inspectProgram(
  version: string,
  target: UpstreamTarget,
  programs: ProgramHost,
): Promise<UpstreamListing> {
  const read = async (options: ClientOptions) =>
    readProgram(version, target, await programs.start(toProgramTarget(target)), options)
  let refused = false
  const onRefused = () => {
    refused = true
  }
  try {
    return await read({ onRefused })
  } catch (error) {
    if (!refused) throw error
    return await read({ versionNegotiation: { mode: { pin: modernVersion } } }).catch(() => {
      throw error
    })
  }
}

interface ClientOptions {
  versionNegotiation?: { mode: { pin: string } }
  /** Called if the program answers `initialize` with an error. */
  onRefused?: () => void
}

/** Reads what a program offers, after it was installed and started, which can take longer. */
async function readProgram(
  version: string,
  target: UpstreamTarget,
  process: UpstreamProcess,
  { onRefused, ...options }: ClientOptions,
): Promise<UpstreamListing> {
  const { Client, ProtocolError } = await import('@modelcontextprotocol/client')
  const client = new Client({ name: 'glovebox', version }, { ...options, listMaxPages: pagesMax })
  const transport = new ProcessTransport(process)
  let problem: Error | undefined
  client.onerror = (error) => {
    if (error instanceof UpstreamProblem) problem = error
  }
  try {
    return await timed(target, () =>
      listingOf(client, transport, (error) => error instanceof ProtocolError && onRefused?.()),
    )
  } catch (error) {
    // The end of the program is the cause of the error of the client.
    throw problem === undefined ? error : redacted(toRefusal(problem, target), target)
  } finally {
    await process.kill()
  }
}

/** Runs `work` within the timeout of the upstream. @throws Refusal in place of its errors. */
async function timed<Result>(target: UpstreamTarget, work: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
  const timeout = new AbortController()
  const timer = setTimeout(() => timeout.abort(new UpstreamTimeout()), target.timeoutMs)
  try {
    return await within(timeout.signal, work(timeout.signal))
  } catch (error) {
    const refusal = toRefusal(timeout.signal.aborted ? timeout.signal.reason : problemOf(error), target)
    throw redacted(refusal, target)
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

function redacted({ code, details }: Refusal, target: UpstreamTarget): Refusal {
  const { problem } = details
  if (typeof problem !== 'string') return new Refusal(code, details)
  return new Refusal(code, { ...details, problem: redactSecrets(problem, target).slice(0, problemMax) })
}

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
  const { Client, SSEClientTransport, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client')
  const { url, headers } = new Credentials().authorize(target)
  const client = new Client(
    { name: 'glovebox', version },
    { ...(target.transport === 'http' && { versionNegotiation: { mode: 'auto' } }), listMaxPages: pagesMax },
  )
  const options = {
    ...{ requestInit: { headers, redirect: 'error' as const }, fetch: boundedFetch(agent, signal, receivedMaxBytes) },
  }
  const transport =
    target.transport === 'sse' ? new SSEClientTransport(url, options) : new StreamableHTTPClientTransport(url, options)
  return listingOf(client, transport)
}

/** Connects and reads everything. @param onRefused called if it cannot connect. */
async function listingOf(
  client: Client,
  transport: Parameters<Client['connect']>[0],
  onRefused: (error: unknown) => void = () => {},
): Promise<UpstreamListing> {
  try {
    await client.connect(transport).catch((error: unknown) => {
      onRefused(error)
      throw error
    })
    const { tools, prompts, resources } = client.getServerCapabilities() ?? {}
    const server = client.getServerVersion()
    const listing: UpstreamListing = {
      tools: tools ? (await client.listTools()).tools.map(toTool) : [],
      prompts: prompts ? (await client.listPrompts()).prompts.map(toPrompt) : [],
      resources: resources
        ? (await client.listResources()).resources.map((resource) => ({ uri: resource.uri, ...toResource(resource) }))
        : [],
      templates: resources ? await templatesOf(client) : [],
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

type Listed<Item> = { [Name in keyof Item]: Item[Name] | undefined } & { name: string }

const toPrompt = ({ name, title, description, arguments: given }: Listed<UpstreamPrompt>): UpstreamPrompt => ({
  ...{ name, ...described(description) },
  ...(title !== undefined && { title }),
  ...(given !== undefined && {
    arguments: given.map(({ name, description, required }) => ({ name, description, required })),
  }),
})

const toResource = ({ name, title, description, mimeType }: Listed<UpstreamResource>): UpstreamResource => ({
  ...{ name, ...described(description) },
  ...(title !== undefined && { title }),
  ...(mimeType !== undefined && { mimeType }),
})

/** Many upstreams have resources, but do not know the method that lists templates. */
async function templatesOf(client: Client): Promise<NonNullable<UpstreamListing['templates']>> {
  try {
    const { resourceTemplates } = await client.listResourceTemplates()
    return resourceTemplates.map((template) => ({ uriTemplate: template.uriTemplate, ...toResource(template) }))
  } catch (error) {
    if ((error as { code?: unknown }).code === methodNotFound) return []
    throw error
  }
}

const methodNotFound = -32601

const described = (description: string | undefined) => (description === undefined ? {} : { description })

function checked(listing: UpstreamListing): UpstreamListing {
  for (const kind of ['tools', 'prompts', 'resources', 'templates'] as const) {
    if ((listing[kind]?.length ?? 0) > itemsMax) throw new Error(`it has more than ${itemsMax} ${kind}`)
  }
  const names = listing.tools.map(({ name }) => name)
  if (new Set(names).size < names.length) throw new Error('two of its tools have the same name')
  if (Buffer.byteLength(JSON.stringify(listing)) > listingMaxBytes) {
    throw new Error(`the descriptions of its tools exceed ${listingMaxBytes} bytes`)
  }
  return listing
}
