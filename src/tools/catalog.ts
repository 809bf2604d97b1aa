import { type Details, Refusal, type RefusalCode } from '../base/errors.ts'
import { type Profile, type Toolset, toolsets } from '../base/profile.ts'
import { noSoftware, type Software } from '../base/software.ts'
import type { Caller } from '../core/caller.ts'
import type { ResourceContents } from './content.ts'
import { sandboxExecute } from './execute/sandbox-execute.ts'
import { executionCancel } from './executions/execution-cancel.ts'
import { executionGet } from './executions/execution-get.ts'
import { executionWait } from './executions/execution-wait.ts'
import { fileResource } from './files/file-resource.ts'
import { filesDownload } from './files/files-download.ts'
import { filesList } from './files/files-list.ts'
import { filesUpload } from './files/files-upload.ts'
import { limitsResource } from './limits.ts'
import type { Prompt, PromptListing } from './prompt.ts'
import type { RequestContext } from './request-context.ts'
import type { Resource, ResourceListing, ResourceTemplate, TemplateListing } from './resource.ts'
import { threadsFork } from './threads/threads-fork.ts'
import { threadsList } from './threads/threads-list.ts'
import { type MirroredArgument, type Offers, type Tool, type ToolListing, unknownTool } from './tool.ts'

/** Everything there is to offer: the product has one, and each suite that needs its own has another. */
export interface Inventory {
  readonly tools: readonly Tool[]
  readonly prompts: readonly Prompt[]
  readonly resources: readonly Resource[]
  readonly templates: readonly ResourceTemplate[]
}

/** What the product offers. */
export const productInventory: Inventory = {
  tools: [
    sandboxExecute,
    filesList,
    filesDownload,
    filesUpload,
    threadsList,
    threadsFork,
    executionGet,
    executionWait,
    executionCancel,
  ],
  prompts: [],
  resources: [limitsResource],
  templates: [fileResource],
}

/** A tool as far as a call needs it. */
export type CallableTool = Pick<Tool, 'name' | 'call'>

/** What one profile offers within one choice of toolsets; the same for every call, in a fixed order. */
export interface Offer {
  readonly tools: readonly ToolListing[]
  readonly prompts: readonly PromptListing[]
  readonly resources: readonly ResourceListing[]
  readonly templates: readonly TemplateListing[]
  has: Offers
  /** @throws Refusal `unknown_tool`, also for a tool that is not offered here. */
  tool(name: string): CallableTool
  /** The arguments that a tool wants repeated as headers; none where there is no such tool. */
  mirrored(name: string): readonly MirroredArgument[]
  /** @throws Refusal `unknown_prompt`. */
  prompt(name: string): Prompt
  /** What is at a URI. @throws Refusal `resource_unknown`. */
  read(caller: Caller, uri: string, context: RequestContext): Promise<ResourceContents[]>
  /** @throws Refusal `resource_unknown`. */
  template(uriTemplate: string): ResourceTemplate
}

const nothing: readonly string[] = []

interface LastOffer {
  profile: Profile
  hidden: readonly string[]
  allowed: readonly string[] | null
  offer: Offer
}

/** Offers are made once for each profile and choice; there are only as many as there are choices in use. */
export class Catalog {
  #offers = new WeakMap<Profile, Map<string, Offer>>()
  /** The last answer for a choice, which is the same array for every call of most clients. */
  #last = new WeakMap<readonly Toolset[], LastOffer>()
  readonly #inventory: Inventory

  readonly #softwareNow: () => Software
  #software = noSoftware

  /** @param softwareNow what the image has, which is known when a runner has connected. */
  constructor(inventory: Inventory = productInventory, softwareNow: () => Software = () => noSoftware) {
    this.#inventory = inventory
    this.#softwareNow = softwareNow
  }

  /** Names of all tools there are. */
  get toolNames(): readonly string[] {
    return this.#inventory.tools.map(({ name }) => name)
  }

  /**
   * @param hidden names of tools that are switched off for the caller.
   * @param allowed those that its key may use; `null`: all.
   */
  offer(
    profile: Profile,
    chosen: readonly Toolset[],
    hidden: readonly string[] = nothing,
    allowed: readonly string[] | null = null,
  ): Offer {
    const software = this.#softwareNow()
    if (software !== this.#software) this.#renew(software)
    const last = this.#last.get(chosen)
    if (last?.profile === profile && last.hidden === hidden && last.allowed === allowed) return last.offer
    const offer = this.#find(profile, chosen, hidden, allowed)
    this.#last.set(chosen, { profile, hidden, allowed, offer })
    return offer
  }

  /** Descriptions name what the image has. */
  #renew(software: Software): void {
    this.#software = software
    this.#offers = new WeakMap()
    this.#last = new WeakMap()
  }

  #find(
    profile: Profile,
    chosen: readonly Toolset[],
    hidden: readonly string[],
    allowed: readonly string[] | null,
  ): Offer {
    // Unknown names are left out, so that they do not add entries to the cache.
    const off = this.toolNames.filter((name) => hidden.includes(name) || allowed?.includes(name) === false)
    const choice = [...toolsets.filter((toolset) => chosen.includes(toolset)), ...off].join(',')
    const offers = this.#offers.get(profile) ?? new Map<string, Offer>()
    this.#offers.set(profile, offers)
    const known = offers.get(choice)
    if (known) return known
    const made = makeOffer(this.#inventory, profile, chosen, off, this.#software)
    offers.set(choice, made)
    return made
  }
}

function makeOffer(
  inventory: Inventory,
  profile: Profile,
  chosen: readonly Toolset[],
  hidden: readonly string[],
  software: Software,
): Offer {
  const offered = inventory.tools.filter(
    (tool) => chosen.includes(tool.toolset) && tool.offered(profile) && !hidden.includes(tool.name),
  )
  const tools = new Map(offered.map((tool) => [tool.name, tool]))
  const templates = inventory.templates.filter(({ tool }) => tool === undefined || tools.has(tool))
  const prompts = new Map(inventory.prompts.map((prompt) => [prompt.listing.name, prompt]))
  const resources = new Map(inventory.resources.map((resource) => [resource.listing(profile).uri, resource]))
  return {
    tools: offered.map((tool) => tool.listing(profile, (name) => tools.has(name), software)),
    has: (name) => tools.has(name),
    prompts: inventory.prompts.map(({ listing }) => listing),
    resources: inventory.resources.map((resource) => resource.listing(profile)),
    templates: templates.map(({ listing }) => listing),
    tool: (name) => tools.get(name) ?? unknownTool(name),
    mirrored: (name) => tools.get(name)?.mirrored ?? [],
    prompt: (name) => prompts.get(name) ?? refuse('unknown_prompt', { prompt: name.slice(0, 128) }),
    read: async (caller, uri, context) => {
      const resource = resources.get(uri)
      if (resource) return resource.read(caller, context)
      for (const template of templates) {
        const contents = await template.read(caller, uri, context)
        if (contents) return contents
      }
      return refuse('resource_unknown', { uri: uri.slice(0, 2048) })
    },
    template: (uriTemplate) =>
      templates.find(({ listing }) => listing.uriTemplate === uriTemplate) ??
      refuse('resource_unknown', { uri: uriTemplate.slice(0, 2048) }),
  }
}

function refuse(code: RefusalCode, details: Details): never {
  throw new Refusal(code, details)
}

/**
 * Returns an offer with further tools, such as those of upstreams.
 * @param listings of these tools, in the order of `tools/list`.
 */
export function withTools(offer: Offer, listings: readonly ToolListing[], tools: readonly CallableTool[]): Offer {
  const more = new Map(tools.map((tool) => [tool.name, tool]))
  return {
    ...offer,
    tools: [...offer.tools, ...listings],
    has: (name) => more.has(name) || offer.has(name),
    tool: (name) => more.get(name) ?? offer.tool(name),
  }
}

/** The toolsets that are offered to a client that selects none: all of the profile, since results refer to them. */
export const defaultToolsets = ({ calls }: Profile): readonly Toolset[] => calls.toolsets

/**
 * Reads `?toolsets=execute,files`. Toolsets that the profile does not permit are never shown.
 * @param asked the value of the parameter; `undefined` means the default.
 * @throws Refusal `invalid_argument` that names what is unknown.
 */
export function chooseToolsets(asked: string | undefined, profile: Profile): readonly Toolset[] {
  if (asked === undefined) return defaultToolsets(profile)
  const names = asked.split(',').map((name) => name.trim())
  const unknown = names.find((name) => !toolsets.some((known) => known === name))
  if (unknown !== undefined) {
    const problem = `must list any of ${toolsets.join(', ')}; ${JSON.stringify(unknown.slice(0, 64))} is unknown`
    throw new Refusal('invalid_argument', { field: 'toolsets', problem })
  }
  return profile.calls.toolsets.filter((toolset) => names.includes(toolset))
}
