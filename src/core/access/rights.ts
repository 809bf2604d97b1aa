import type { Capability } from '../../base/capabilities.ts'
import { Refusal } from '../../base/errors.ts'
import type { Toolset } from '../../base/profile.ts'
import type { Store } from '../../store/store.ts'
import type { Caller } from '../caller.ts'
import { isUpstreamGrant } from '../upstreams/grants.ts'
import type { HiddenTools } from './hidden-tools.ts'

/** The fields of a tool that rights depend on. */
export interface ToolGrant {
  readonly name: string
  readonly toolset: Toolset
  /** Capabilities of a key that is limited to this tool. */
  readonly capabilities: readonly Capability[]
}

/**
 * The capability that an operation requires. With `orOwnRun`, the first argument of the operation is the ID of a run, and a
 * key with the capability `execute` may use the operation for runs that it started itself.
 */
export type Need = Capability | { readonly capability: Capability; readonly orOwnRun: true }

/** An operation that first checks the rights of its caller. Only `Rights` creates one. */
export type Guarded<V> = V & { readonly capability: Capability }

type GuardedVerb<V> = V extends (caller: Caller, ...rest: infer Rest) => infer Result
  ? Guarded<(caller: Caller, ...rest: Rest) => Promise<Awaited<Result>>>
  : never

/** The methods of a noun that `Needs` lists with their capability. Other methods are not accessible from outside of core. */
export type GuardedNoun<Noun, Needs> = {
  readonly [Name in keyof Needs]: Name extends keyof Noun ? GuardedVerb<Noun[Name]> : never
}

/**
 * Decides what a caller may do. A caller has a capability that tools grant when its key may use one of these tools, its
 * profile allows the toolset, and the tool is not hidden from its organization. It has a capability that no tool grants when
 * its key is not limited to tools. It has the capabilities of upstreams also when its key may use an upstream.
 */
export class Rights {
  readonly #tools: readonly ToolGrant[]
  readonly #hidden: HiddenTools
  readonly #store: Pick<Store, 'runs'>
  /** The tools that grant each capability. */
  readonly #granted = new Map<Capability, readonly ToolGrant[]>()

  /** @param tools all existing tools. */
  constructor(tools: readonly ToolGrant[], hidden: HiddenTools, store: Pick<Store, 'runs'>) {
    this.#tools = tools
    this.#hidden = hidden
    this.#store = store
  }

  /** Returns a guarded operation. It throws the refusal `permission_denied` for callers without the capability. */
  verb<Rest extends unknown[], Result>(
    need: Need,
    verb: (caller: Caller, ...rest: Rest) => Result | Promise<Result>,
  ): Guarded<(caller: Caller, ...rest: Rest) => Promise<Result>> {
    const checked = async (caller: Caller, ...rest: Rest) => {
      if (this.#hasWithoutTools(caller, capabilityOf(need)) !== true) await this.#require(need, caller, rest[0])
      return await verb(caller, ...rest)
    }
    return Object.assign(checked, { capability: capabilityOf(need) })
  }

  /** Returns a guarded operation that yields events. It checks the capability before the first event. */
  stream<Rest extends unknown[], Item>(
    need: Need,
    verb: (caller: Caller, ...rest: Rest) => AsyncGenerator<Item, void, undefined>,
  ): Guarded<(caller: Caller, ...rest: Rest) => AsyncGenerator<Item, void, undefined>> {
    const require = this.#require.bind(this)
    async function* checked(caller: Caller, ...rest: Rest): AsyncGenerator<Item, void, undefined> {
      await require(need, caller, rest[0])
      yield* verb(caller, ...rest)
    }
    return Object.assign(checked, { capability: capabilityOf(need) })
  }

  /** Checks that the caller has a capability. @throws Refusal `permission_denied`. */
  require(caller: Caller, capability: Capability): Promise<void> {
    return this.#require(capability, caller, undefined)
  }

  /** Returns a noun with guarded methods. Omits the methods that `needs` does not list. */
  noun<Noun extends object, Needs extends { readonly [Name in keyof Noun]?: Need }>(
    noun: Noun,
    needs: Needs,
  ): GuardedNoun<Noun, Needs> {
    const verbs = Object.entries(needs as Record<string, Need>).map(([name, need]) => {
      const verb = (noun as Record<string, (caller: Caller, ...rest: unknown[]) => unknown>)[name]!
      return [name, this.verb(need, verb.bind(noun))]
    })
    return Object.fromEntries(verbs) as GuardedNoun<Noun, Needs>
  }

  async #require(need: Need, caller: Caller, first: unknown): Promise<void> {
    const capability = capabilityOf(need)
    if (await this.#has(caller, capability)) return
    if (typeof need === 'object' && (await this.#startedRun(caller, String(first)))) return
    throw this.#missing(capability)
  }

  async #has(caller: Caller, capability: Capability): Promise<boolean> {
    const granting = this.#granting(capability)
    const known = this.#hasWithoutTools(caller, capability)
    if (known !== undefined) return known
    const hidden = await this.#hidden.of(caller)
    return granting.some(
      ({ name, toolset }) =>
        caller.profile.calls.toolsets.includes(toolset) &&
        !hidden.includes(name) &&
        (caller.tools === null || caller.tools.includes(name)),
    )
  }

  /** Returns whether a caller has a capability that no tool grants; `undefined` if tools grant it. */
  #hasWithoutTools(caller: Caller, capability: Capability): boolean | undefined {
    if (this.#granting(capability).length > 0) return undefined
    return caller.tools === null || (isOfUpstreams(capability) && caller.tools.some(isUpstreamGrant))
  }

  /** Returns whether the caller's key can execute code and has started a run. @throws Refusal `run_unknown`. */
  async #startedRun(caller: Caller, runId: string): Promise<boolean> {
    if (!(await this.#has(caller, 'execute'))) return false
    const run = await this.#store.runs.get(runId)
    if (run === undefined || run.orgId !== caller.orgId) {
      throw new Refusal('run_unknown', { runId: runId.slice(0, 128) })
    }
    return run.keyId === caller.keyId
  }

  #granting(capability: Capability): readonly ToolGrant[] {
    const known = this.#granted.get(capability)
    if (known) return known
    const granting = this.#tools.filter(({ capabilities }) => capabilities.includes(capability))
    this.#granted.set(capability, granting)
    return granting
  }

  #missing(capability: Capability): Refusal {
    const tools = this.#granting(capability).map(({ name }) => name)
    const source = tools.length > 0 ? `granted by ${tools.join(', ')}` : 'granted to keys that are not limited to tools'
    return new Refusal('permission_denied', { capability, source })
  }
}

/** Returns whether a capability concerns upstreams, which a key that is limited to tools can have. */
const isOfUpstreams = (capability: Capability): boolean => capability.startsWith('upstreams.')

const capabilityOf = (need: Need): Capability => (typeof need === 'string' ? need : need.capability)
