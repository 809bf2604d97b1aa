import { Refusal } from '../base/errors.ts'
import type { Profile } from '../base/profile.ts'
import { sandboxExecute } from './execute/sandbox-execute.ts'
import { type Tool, type ToolListing, type Toolset, toolsets, unknownTool } from './tool.ts'

/** Every tool of the product. */
export const tools: readonly Tool[] = [sandboxExecute]

/** Shown at `/mcp` unless a client asks otherwise. */
export const defaultToolsets: readonly Toolset[] = ['execute', 'files']

/** The tools that one profile offers within one choice of toolsets. */
export interface Offer {
  /** In a fixed order: the same for every call and every process. */
  readonly listings: readonly ToolListing[]
  /** The result of `tools/list` as JSON: the same bytes for every call. */
  readonly listJson: string
  /** @throws Refusal `unknown_tool`, also for a tool that is not offered here. */
  find(name: string): Tool
}

/** Offers are made once for each profile and choice; there are only as many as there are subsets of toolsets. */
export class Catalog {
  readonly #offers = new WeakMap<Profile, Map<string, Offer>>()
  readonly #tools: readonly Tool[]

  constructor(all: readonly Tool[] = tools) {
    this.#tools = all
  }

  offer(profile: Profile, chosen: readonly Toolset[]): Offer {
    const choice = toolsets.filter((toolset) => chosen.includes(toolset)).join(',')
    const offers = this.#offers.get(profile) ?? new Map<string, Offer>()
    this.#offers.set(profile, offers)
    const known = offers.get(choice)
    if (known) return known
    const made = this.#make(profile, chosen)
    offers.set(choice, made)
    return made
  }

  #make(profile: Profile, chosen: readonly Toolset[]): Offer {
    const offered = new Map(
      this.#tools.filter((tool) => chosen.includes(tool.toolset)).map((tool) => [tool.name, tool]),
    )
    const listings = [...offered.values()].map((tool) => tool.listing(profile))
    return {
      listings,
      listJson: JSON.stringify({ tools: listings }),
      find: (name) => offered.get(name) ?? unknownTool(name),
    }
  }
}

/**
 * Reads `?toolsets=execute,files`.
 * @param asked the value of the parameter; `undefined` means the default.
 * @throws Refusal `invalid_argument` that names what is unknown.
 */
export function chooseToolsets(asked: string | undefined): readonly Toolset[] {
  if (asked === undefined) return defaultToolsets
  const names = asked.split(',').map((name) => name.trim())
  const unknown = names.find((name) => !toolsets.includes(name as Toolset))
  if (unknown !== undefined) {
    const problem = `must list any of ${toolsets.join(', ')}; ${JSON.stringify(unknown.slice(0, 64))} is unknown`
    throw new Refusal('invalid_argument', { field: 'toolsets', problem })
  }
  return names as Toolset[]
}
