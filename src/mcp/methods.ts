import { Refusal } from '../base/errors.ts'
import type { Caller } from '../core/caller.ts'
import type { Offer } from '../tools/catalog.ts'
import type { RequestContext } from '../tools/request-context.ts'
import type { ToolContext, ToolResult } from '../tools/tool.ts'
import { isObject, own, type Params } from './json-rpc.ts'
import { whenFree } from './retry-while-busy.ts'

/**
 * What both eras can be asked for, without the envelope of either. Each method answers with its result; how that is
 * stamped, cached and sent is the codec's.
 */
const lists: Readonly<Record<string, (offer: Offer) => object>> = {
  'tools/list': ({ tools }) => ({ tools }),
  'prompts/list': ({ prompts }) => ({ prompts }),
  'resources/list': ({ resources }) => ({ resources }),
  'resources/templates/list': ({ templates }) => ({ resourceTemplates: templates }),
}

/** Whether a method is one of the lists. */
export const isList = (method: string): boolean => Object.hasOwn(lists, method)

/** A whole list: all there is fits one page, so no cursor was ever given out. */
export const list = (method: string, offer: Offer): object => lists[method]!(offer)

/** @throws Refusal `invalid_argument`: no list has a second page. */
export function refuseCursor(params: Params): void {
  const cursor = own(params, 'cursor')
  if (cursor !== undefined && cursor !== '') {
    throw new Refusal('invalid_argument', { field: 'cursor', problem: 'was not given out by this server' })
  }
}

/** Texts that are the same for every call of an offer are made once. */
export class OfferTexts {
  readonly #texts = new WeakMap<Offer, Map<string, string>>()

  get(offer: Offer, name: string, make: () => string): string {
    const known = this.#texts.get(offer) ?? new Map<string, string>()
    this.#texts.set(offer, known)
    const text = known.get(name) ?? make()
    known.set(name, text)
    return text
  }
}

/** What an offer holds, as both eras declare it. A capability that is not declared is not served either. */
export interface Features {
  prompts: boolean
  resources: boolean
  completions: boolean
}

export const featuresOf = ({ prompts, resources, templates }: Offer): Features => ({
  prompts: prompts.length > 0,
  resources: resources.length + templates.length > 0,
  completions: prompts.some(({ arguments: given }) => given.length > 0) || templates.length > 0,
})

/** Whether a method is served to whoever sees this offer. */
export function isServed(method: string, offer: Offer): boolean {
  const features = featuresOf(offer)
  if (method.startsWith('prompts/')) return features.prompts
  if (method.startsWith('resources/')) return features.resources
  if (method.startsWith('completion/')) return features.completions
  return true
}

/** Calls a tool, as the profile wants calls to be made. @throws Refusal of the tool, `invalid_argument`, `unknown_tool`. */
export async function callTool(
  caller: Caller,
  params: Params,
  offer: Offer,
  context: ToolContext,
): Promise<ToolResult> {
  const tool = offer.tool(text(params, 'name'))
  const given = own(params, 'arguments') ?? {}
  return whenFree(caller.profile.calls, context.signal, () => tool.call(caller, given, context))
}

/** @throws Refusal `unknown_prompt`, `invalid_argument`. */
export async function getPrompt(
  caller: Caller,
  params: Params,
  offer: Offer,
  context: RequestContext,
): Promise<{ description: string; messages: object[] }> {
  const prompt = offer.prompt(text(params, 'name'))
  const given = own(params, 'arguments') ?? {}
  if (!isObject(given)) throw invalid('arguments', 'must be an object')
  for (const [name, value] of Object.entries(given)) {
    if (typeof value !== 'string') throw invalid(`arguments.${name.slice(0, 128)}`, 'must be a string')
  }
  for (const { name, required } of prompt.listing.arguments) {
    if (required && !Object.hasOwn(given, name)) throw invalid(`arguments.${name}`, 'is required and missing')
  }
  const messages = await prompt.get(caller, given as Record<string, string>, context)
  return { description: prompt.listing.description, messages }
}

/** @throws Refusal `resource_unknown`. */
export async function readResource(
  caller: Caller,
  params: Params,
  offer: Offer,
  context: RequestContext,
): Promise<{ contents: object[] }> {
  return { contents: await offer.read(caller, text(params, 'uri'), context) }
}

/** A completion holds no more: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion */
const maxCompletions = 100

/** @throws Refusal `unknown_prompt`, `resource_unknown`, `invalid_argument`. */
export async function complete(caller: Caller, params: Params, offer: Offer): Promise<object> {
  const reference = object(params, 'ref')
  const argument = object(params, 'argument')
  const name = text(argument, 'name', 'argument.name')
  const typed = text(argument, 'value', 'argument.value')
  const kind = own(reference, 'type')
  if (kind !== 'ref/prompt' && kind !== 'ref/resource') throw invalid('ref.type', 'must be ref/prompt or ref/resource')
  const values =
    kind === 'ref/prompt'
      ? await offer.prompt(text(reference, 'name', 'ref.name')).complete?.(caller, name, typed)
      : await offer.template(text(reference, 'uri', 'ref.uri')).complete?.(caller, name, typed)
  const all = values ?? []
  return {
    completion: { values: all.slice(0, maxCompletions), total: all.length, hasMore: all.length > maxCompletions },
  }
}

function text(params: Params, name: string, field = name): string {
  const value = own(params, name)
  if (typeof value !== 'string') throw invalid(field, 'must be a string')
  return value
}

function object(params: Params, name: string): Params {
  const value = own(params, name)
  if (!isObject(value)) throw invalid(name, 'must be an object')
  return value
}

const invalid = (field: string, problem: string): Refusal => new Refusal('invalid_argument', { field, problem })
