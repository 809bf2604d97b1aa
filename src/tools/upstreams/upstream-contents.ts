import type { Caller } from '../../core/caller.ts'
import type { OfferedUpstream } from '../../core/upstreams/upstreams.ts'
import type { Gateway } from '../../gateway/gateway.ts'
import type { ContentsOffer } from '../catalog.ts'
import type { ResourceContents } from '../content.ts'
import type { Prompt, PromptMessage } from '../prompt.ts'
import type { RequestContext } from '../request-context.ts'
import type { ResourceListing, ResourceTemplate } from '../resource.ts'
import { nameOf } from './upstream-tools.ts'

/** Precedes the URI of a resource, so that equal URIs of two upstreams differ. */
const prefixOf = (upstream: string): string => `upstream://${upstream}/`

/** Returns the prompts, resources and templates of upstreams under names and URIs of their own. */
export function upstreamContents(
  gateway: Gateway,
  upstreams: readonly OfferedUpstream[],
  isPromptTaken: (name: string) => boolean,
): ContentsOffer {
  const prompts: Prompt[] = []
  const resources: ResourceListing[] = []
  const templates: ResourceTemplate[] = []
  const taken = new Set<string>()
  for (const { name: upstream, listing } of upstreams) {
    for (const prompt of listing?.prompts ?? []) {
      const name = nameOf(upstream, prompt.name, (candidate) => taken.has(candidate) || isPromptTaken(candidate))
      if (taken.has(name)) continue
      taken.add(name)
      prompts.push(toPrompt(gateway, upstream, name, prompt))
    }
    for (const { uri, ...resource } of listing?.resources ?? []) {
      resources.push({ uri: prefixOf(upstream) + uri, ...described(upstream, resource) })
    }
    for (const { uriTemplate, ...template } of listing?.templates ?? []) {
      templates.push(toTemplate(gateway, upstream, uriTemplate, described(upstream, template)))
    }
  }
  return {
    prompts,
    resources,
    templates,
    read: (caller, uri, context) => read(gateway, upstreams, caller, uri, context),
  }
}

type Listing = NonNullable<OfferedUpstream['listing']>

const described = (
  upstream: string,
  {
    name,
    title = name,
    description = '',
    mimeType = 'application/octet-stream',
  }: Omit<Listing['resources'][number], 'uri'>,
): Omit<ResourceListing, 'uri'> => ({
  ...{ name, title, mimeType },
  description: `${description}\n\n(from ${upstream})`.trim(),
})

const toPrompt = (gateway: Gateway, upstream: string, name: string, prompt: Listing['prompts'][number]): Prompt => ({
  listing: {
    ...{ name, title: prompt.title ?? prompt.name, description: prompt.description ?? '' },
    arguments: (prompt.arguments ?? []).map(({ name, description = '', required = false }) => ({
      ...{ name, description, required },
    })),
  },
  get: async (caller, given, { signal }) => {
    const params = { name: prompt.name, arguments: given }
    const { messages } = await gateway.request(caller, { upstream, method: 'prompts/get', params }, signal)
    return Array.isArray(messages) ? (messages as PromptMessage[]) : []
  },
  complete: (caller, argument, typed) =>
    complete(gateway, caller, upstream, { type: 'ref/prompt', name: prompt.name }, { name: argument, value: typed }),
})

const toTemplate = (
  gateway: Gateway,
  upstream: string,
  uriTemplate: string,
  listing: Omit<ResourceListing, 'uri'>,
): ResourceTemplate => ({
  listing: { uriTemplate: prefixOf(upstream) + uriTemplate, ...listing },
  // The URI names its upstream, so that it is read without a comparison with templates.
  read: async () => undefined,
  complete: (caller, variable, typed) =>
    complete(gateway, caller, upstream, { type: 'ref/resource', uri: uriTemplate }, { name: variable, value: typed }),
})

/** @returns `undefined` if the URI belongs to no upstream of the caller. */
async function read(
  gateway: Gateway,
  upstreams: readonly OfferedUpstream[],
  caller: Caller,
  uri: string,
  { signal }: Pick<RequestContext, 'signal'>,
): Promise<ResourceContents[] | undefined> {
  const found = upstreams.find(({ name, offersAll }) => offersAll && uri.startsWith(prefixOf(name)))
  if (found === undefined) return undefined
  const { name: upstream } = found
  const params = { uri: uri.slice(prefixOf(upstream).length) }
  const { contents } = await gateway.request(caller, { upstream, method: 'resources/read', params }, signal)
  if (!Array.isArray(contents)) return []
  return (contents as ResourceContents[]).map((content) => ({ ...content, uri: prefixOf(upstream) + content.uri }))
}

const noSignal = new AbortController().signal

async function complete(
  gateway: Gateway,
  caller: Caller,
  upstream: string,
  ref: object,
  argument: object,
): Promise<string[]> {
  const asked = { upstream, method: 'completion/complete', params: { ref, argument } }
  const { completion } = await gateway.request(caller, asked, noSignal)
  const { values } = (completion ?? {}) as { values?: unknown }
  return Array.isArray(values) ? values.filter((value) => typeof value === 'string') : []
}
