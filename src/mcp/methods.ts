import type { Caller } from '../core/caller.ts'
import type { Offer } from '../tools/catalog.ts'
import type { RequestContext } from '../tools/request-context.ts'
import type { ToolContext, ToolResult } from '../tools/tool.ts'
import { own, type Params, type RequestId } from './json-rpc/message.ts'
import { invalidParam, objectParam, optionalObjectParam, stringParam } from './params.ts'
import { type ResultOptions, toClientListing, toClientResult } from './result-options.ts'
import { retryWhileThreadBusy } from './retry-while-thread-busy.ts'

/**
 * The methods that both eras share, without the envelope of either. Each returns its result; the era encodes and sends
 * it.
 */
const lists: Readonly<Record<string, (offer: Offer, results: ResultOptions) => object>> = {
  'tools/list': ({ tools }, results) => ({ tools: tools.map((tool) => toClientListing(tool, results)) }),
  'prompts/list': ({ prompts }) => ({ prompts }),
  'resources/list': ({ resources }) => ({ resources }),
  'resources/templates/list': ({ templates }) => ({ resourceTemplates: templates }),
}

/** A request whose work can report progress, or ask the client for input. */
export interface CallRequest {
  id: RequestId
  method: 'tools/call' | 'prompts/get' | 'resources/read'
  params: Params
}

export const isListMethod = (method: string): boolean => Object.hasOwn(lists, method)

/** Returns a whole list: every list fits one page, so the server issues no cursors. */
export const listResult = (method: string, offer: Offer, results: ResultOptions): object =>
  lists[method]!(offer, results)

/** @throws Refusal `invalid_argument`, since no list has a second page. */
export function refuseCursor(params: Params): void {
  const cursor = own(params, 'cursor')
  if (cursor !== undefined && cursor !== null && cursor !== '')
    throw invalidParam('cursor', 'was not issued by this server')
}

/** Caches the encoded results that are the same for every call of one offer. */
export class OfferCache {
  readonly #results = new WeakMap<Offer, Map<string, string>>()

  get(offer: Offer, name: string, { structuredResults }: ResultOptions, encode: () => string): string {
    const method = structuredResults ? `${name} structured` : name
    const results = this.#results.get(offer) ?? new Map<string, string>()
    this.#results.set(offer, results)
    const result = results.get(method) ?? encode()
    results.set(method, result)
    return result
  }
}

/** The features of an offer, which both eras declare as capabilities. A feature that is not declared is not served. */
export interface Features {
  prompts: boolean
  resources: boolean
  completions: boolean
}

export const featuresOf = ({ prompts, resources, templates }: Offer): Features => ({
  prompts: prompts.length > 0,
  resources: resources.length + templates.length > 0,
  completions: prompts.some(({ arguments: listed }) => listed.length > 0) || templates.length > 0,
})

/** Whether a method belongs to a feature that the offer has. */
export function isServed(method: string, offer: Offer): boolean {
  const features = featuresOf(offer)
  if (method.startsWith('prompts/')) return features.prompts
  if (method.startsWith('resources/')) return features.resources
  if (method.startsWith('completion/')) return features.completions
  return true
}

/**
 * Calls a tool of the offer under the call policy of the profile.
 * @throws Refusal of the tool, `invalid_argument`, `unknown_tool`.
 */
export async function callTool(
  caller: Caller,
  params: Params,
  offer: Offer,
  context: ToolContext,
  results: ResultOptions,
): Promise<ToolResult> {
  const tool = offer.tool(stringParam(params, 'name'))
  const input = own(params, 'arguments') ?? {}
  const result = await retryWhileThreadBusy(results, context.signal, () => tool.call(caller, input, context))
  return toClientResult(result, results, context.baseUrl)
}

/** @throws Refusal `unknown_prompt`, `invalid_argument`. */
export async function getPrompt(
  caller: Caller,
  params: Params,
  offer: Offer,
  context: RequestContext,
): Promise<{ description: string; messages: object[] }> {
  const prompt = offer.prompt(stringParam(params, 'name'))
  const input = optionalObjectParam(params, 'arguments')
  for (const [name, value] of Object.entries(input)) {
    if (typeof value !== 'string') throw invalidParam(`arguments.${name.slice(0, 128)}`, 'must be a string')
  }
  for (const { name, required } of prompt.listing.arguments) {
    if (required && !Object.hasOwn(input, name)) throw invalidParam(`arguments.${name}`, 'is required and missing')
  }
  const messages = await prompt.get(caller, input as Record<string, string>, context)
  return { description: prompt.listing.description, messages }
}

/** @throws Refusal `resource_unknown`. */
export async function readResource(
  caller: Caller,
  params: Params,
  offer: Offer,
  context: RequestContext,
): Promise<{ contents: object[] }> {
  return { contents: await offer.read(caller, stringParam(params, 'uri'), context) }
}

/** The limit of the protocol: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion */
const maxCompletions = 100

/** @throws Refusal `unknown_prompt`, `resource_unknown`, `invalid_argument`. */
export async function complete(caller: Caller, params: Params, offer: Offer): Promise<object> {
  const reference = objectParam(params, 'ref')
  const argument = objectParam(params, 'argument')
  const name = stringParam(argument, 'name', 'argument.name')
  const typed = stringParam(argument, 'value', 'argument.value')
  const kind = own(reference, 'type')
  if (kind !== 'ref/prompt' && kind !== 'ref/resource') {
    throw invalidParam('ref.type', 'must be ref/prompt or ref/resource')
  }
  const values =
    kind === 'ref/prompt'
      ? await offer.prompt(stringParam(reference, 'name', 'ref.name')).complete?.(caller, name, typed)
      : await offer.template(stringParam(reference, 'uri', 'ref.uri')).complete?.(caller, name, typed)
  const all = values ?? []
  return {
    completion: { values: all.slice(0, maxCompletions), total: all.length, hasMore: all.length > maxCompletions },
  }
}
