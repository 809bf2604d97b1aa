import { type Details, Refusal, type RefusalCode } from '../base/errors.ts'
import { adminToolset, type Profile, selectedToolsets, type Toolset, toolsets } from '../base/profile.ts'
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
import { runtimeToolsOfMcp } from './runtime/tools.ts'
import { sandboxContexts } from './sandbox/sandbox-contexts.ts'
import { sandboxFilesRead, sandboxFilesWrite } from './sandbox/sandbox-files.ts'
import { sandboxGetMetrics, sandboxInspect, sandboxList } from './sandbox/sandbox-info.ts'
import { sandboxPorts } from './sandbox/sandbox-ports.ts'
import { sandboxProcesses } from './sandbox/sandbox-processes.ts'
import { sandboxRewind, sandboxRunCode } from './sandbox/sandbox-run-code.ts'
import { sandboxRunCommand } from './sandbox/sandbox-run-command.ts'
import { sandboxStart } from './sandbox/sandbox-start.ts'
import { sandboxPause, sandboxRestart, sandboxResume, sandboxStop } from './sandbox/sandbox-states.ts'
import { threadsFork } from './threads/threads-fork.ts'
import { threadsList } from './threads/threads-list.ts'
import { type MirroredArgument, type Offers, type Tool, type ToolListing, unknownTool } from './tool.ts'
import { workspaceTools } from './workspace/tools.ts'

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
    sandboxStart,
    sandboxStop,
    sandboxRunCode,
    sandboxRunCommand,
    sandboxRewind,
    sandboxContexts,
    sandboxProcesses,
    sandboxPorts,
    sandboxFilesRead,
    sandboxFilesWrite,
    sandboxList,
    sandboxInspect,
    sandboxGetMetrics,
    sandboxRestart,
    sandboxPause,
    sandboxResume,
    ...runtimeToolsOfMcp,
    ...workspaceTools,
  ],
  prompts: [],
  resources: [limitsResource],
  templates: [fileResource],
}

/** Describes all tools as a profile offers them. */
export function describeTools(profile: Profile): (ToolListing & { toolset: Toolset })[] {
  const { tools } = productInventory
  const names = new Set(tools.map(({ name }) => name))
  return tools.map((tool) => ({ toolset: tool.toolset, ...tool.listing(profile, (name) => names.has(name)) }))
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
  software: Software
  hidden: readonly string[]
  allowed: readonly string[] | null
  offer: Offer
}

/** Offers are made once for each profile and choice; there are only as many as there are choices in use. */
export class Catalog {
  readonly #offers = new WeakMap<Profile, { software: Software; offers: Map<string, Offer> }>()
  /** The last answer for a choice, which is the same array for every call of most clients. */
  readonly #last = new WeakMap<readonly Toolset[], LastOffer>()
  readonly #inventory: Inventory

  readonly #softwareOf: (image: string) => Software

  /** @param softwareOf what an image has, which is known when a runner has connected: the same object until it changes. */
  constructor(inventory: Inventory = productInventory, softwareOf: (image: string) => Software = () => noSoftware) {
    this.#inventory = inventory
    this.#softwareOf = softwareOf
  }

  /** Names of the tools that keys can be limited to, and that can be hidden from organizations. */
  get toolNames(): readonly string[] {
    return this.#inventory.tools.filter(({ toolset }) => toolset !== adminToolset).map(({ name }) => name)
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
    const software = this.#softwareOf(profile.image)
    const last = this.#last.get(chosen)
    const isSame = last?.profile === profile && last.software === software
    if (isSame && last.hidden === hidden && last.allowed === allowed) return last.offer
    const offer = this.#find(profile, software, chosen, hidden, allowed)
    this.#last.set(chosen, { profile, software, hidden, allowed, offer })
    return offer
  }

  #find(
    profile: Profile,
    software: Software,
    chosen: readonly Toolset[],
    hidden: readonly string[],
    allowed: readonly string[] | null,
  ): Offer {
    // Unknown names are left out, so that they do not add entries to the cache.
    const all = this.#inventory.tools.map(({ name }) => name)
    const off = all.filter((name) => hidden.includes(name) || allowed?.includes(name) === false)
    const ordered: readonly Toolset[] = [...toolsets, adminToolset]
    const choice = [...ordered.filter((toolset) => chosen.includes(toolset)), ...off].join(',')
    // Descriptions name what the image has.
    const current = this.#offers.get(profile)
    const offers = current?.software === software ? current.offers : new Map<string, Offer>()
    this.#offers.set(profile, { software, offers })
    const known = offers.get(choice)
    if (known) return known
    const made = makeOffer(this.#inventory, profile, chosen, off, software)
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

/**
 * The toolsets that are offered to a client that selects none: those of the profile that need not be selected, since
 * results refer to them. A profile that allows only such as must be selected offers them all.
 */
export function defaultToolsets({ calls }: Profile): readonly Toolset[] {
  const known = defaultsOf.get(calls.toolsets)
  if (known) return known
  const offered = calls.toolsets.filter((toolset) => !selectedToolsets.includes(toolset))
  const chosen = offered.length === 0 ? calls.toolsets : offered
  defaultsOf.set(calls.toolsets, chosen)
  return chosen
}

/** The same array for every call, since the catalog compares it. */
const defaultsOf = new WeakMap<readonly Toolset[], readonly Toolset[]>()

/**
 * Reads `?toolsets=execute,files`. Toolsets that the profile does not permit are never shown.
 * @param asked the value of the parameter; `undefined` means the default.
 * @throws Refusal `invalid_argument` that names what is unknown.
 */
export function chooseToolsets(asked: string | undefined, profile: Profile): readonly Toolset[] {
  if (asked === undefined) return defaultToolsets(profile)
  const names = asked.split(',').map((name) => name.trim())
  const known: readonly string[] = [...toolsets, adminToolset]
  const unknown = names.find((name) => !known.includes(name))
  if (unknown !== undefined) {
    const problem = `must list any of ${toolsets.join(', ')}; ${JSON.stringify(unknown.slice(0, 64))} is unknown`
    throw new Refusal('invalid_argument', { field: 'toolsets', problem })
  }
  return profile.calls.toolsets.filter((toolset) => names.includes(toolset))
}

/** Prompts, resources and templates that an offer gets in addition, such as those of upstreams. */
export interface ContentsOffer {
  prompts: readonly Prompt[]
  resources: readonly ResourceListing[]
  templates: readonly ResourceTemplate[]
  /** @returns `undefined` if nothing here is at the URI. */
  read(caller: Caller, uri: string, context: RequestContext): Promise<ResourceContents[] | undefined>
}

/** Returns an offer with further prompts, resources and templates. */
export function withContents(offer: Offer, more: ContentsOffer): Offer {
  const { prompts, resources, templates } = more
  if (prompts.length + resources.length + templates.length === 0) return offer
  const byName = new Map(prompts.map((prompt) => [prompt.listing.name, prompt]))
  const byTemplate = new Map(templates.map((template) => [template.listing.uriTemplate, template]))
  return {
    ...offer,
    prompts: [...offer.prompts, ...prompts.map(({ listing }) => listing)],
    resources: [...offer.resources, ...resources],
    templates: [...offer.templates, ...templates.map(({ listing }) => listing)],
    prompt: (name) => byName.get(name) ?? offer.prompt(name),
    template: (uriTemplate) => byTemplate.get(uriTemplate) ?? offer.template(uriTemplate),
    read: async (caller, uri, context) => (await more.read(caller, uri, context)) ?? offer.read(caller, uri, context),
  }
}
