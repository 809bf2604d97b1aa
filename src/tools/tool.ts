import type { Static, TObject } from 'typebox'
import type { Capability } from '../base/capabilities.ts'
import { Refusal } from '../base/errors.ts'
import type { Profile, Toolset } from '../base/profile.ts'
import { type CheckArguments, type CheckOptions, compile, compileLater } from '../base/schema-check.ts'
import { noSoftware, type Software } from '../base/software.ts'
import type { Caller } from '../core/caller.ts'
import type { Content } from './content.ts'
import { redactedCall } from './redaction.ts'
import type { RequestContext } from './request-context.ts'

/** What a tool answers: for a person or a model, and for a program. */
export interface ToolResult {
  content: Content[]
  /** As the output schema says, where there is one. */
  structuredContent?: Record<string, unknown>
  /** For programs; clients do not hand it to models. */
  _meta?: Record<string, unknown>
  isError: boolean
}

/** How far a call has come; without numbers it is only known that it went on. */
export interface Progress {
  message: string
  done?: number
  total?: number
}

/** Whether the caller can call the tool of this name, beside the one that asks. */
export type Offers = (tool: string) => boolean

/** The reason with which the signal of a call aborts when its client has disconnected. */
export const disconnectReason = 'disconnected'

export interface ToolContext extends RequestContext {
  offers: Offers
  /** The client receives links to the images of a run, which are therefore stored. */
  linksImages: boolean
  /** The call continues when its client disconnects. */
  detached: boolean
  /** Called once the call was taken: what goes wrong from then on is a result, not a refusal. */
  started?: () => void
  /** Reports progress. Resolves when more can be sent. Absent if the client did not request progress. */
  progress?: (progress: Progress) => Promise<void>
  /**
   * Responds now, with a task that the client polls for the outcome; the call continues. Resolves when the task is
   * written. Absent if the client does not support tasks.
   * @param runId the run that the outcome comes from: with it the task outlives this process.
   */
  toTask?: (runId?: string) => Promise<void>
}

/** MCP's hints about a tool: https://modelcontextprotocol.io/specification/2025-11-25/server/tools */
export interface Annotations {
  readOnlyHint: boolean
  destructiveHint: boolean
  idempotentHint: boolean
  openWorldHint?: boolean
}

/** An argument that a client repeats as the header `Mcp-Param-NAME`, for proxies that route by it. */
export interface MirroredArgument {
  /** Names of properties from the arguments down. */
  path: readonly string[]
  header: string
}

interface ToolDefinition<Input extends TObject> {
  name: string
  title: string
  toolset: Toolset
  /** What the verbs that it calls need, and so what a key that is limited to this tool may do by any API. */
  capabilities: readonly Capability[]
  annotations: Annotations
  /** Whether a profile offers it; every one does when this is absent. */
  offered?(profile: Profile): boolean
  /** Written for the model that chooses a tool. */
  describe(profile: Profile, offers: Offers, software: Software): string
  /** Every argument there is; a profile may narrow what `tools/list` shows, never what this allows. */
  input: Input
  /** Converts other accepted values of an argument, by its name. */
  aliases?: CheckOptions['aliases']
  /** Whether its results are searched for secrets; absent: as the profile says. */
  redacted?: boolean
  /** The input as it holds for a profile. */
  narrow(input: Input, profile: Profile): object
  output?: TObject
  /** @throws Refusal when the arguments break a rule that a schema can't say. */
  run(caller: Caller, input: Static<Input>, context: ToolContext): Promise<ToolResult>
}

/** A tool as the catalog holds it: what kind of input it takes is its own affair. */
export interface Tool {
  readonly name: string
  readonly toolset: Toolset
  readonly capabilities: readonly Capability[]
  readonly mirrored: readonly MirroredArgument[]
  offered(profile: Profile): boolean
  /** As `tools/list` shows it to a key of this profile. */
  listing(profile: Profile, offers: Offers, software?: Software): ToolListing
  /** @throws Refusal `invalid_argument` that names the field, or whatever the tool refuses. */
  call(caller: Caller, input: unknown, context: ToolContext): Promise<ToolResult>
}

export interface ToolListing {
  name: string
  title: string
  description: string
  inputSchema: object
  outputSchema?: object
  annotations: Annotations
}

/**
 * Defines a tool, once: its listing, its check and its documentation come from here. The check is compiled by the first
 * call: compiling those of all tools would take most of the time that a server needs to start. That of code is compiled now.
 */
export function tool<Input extends TObject>(definition: ToolDefinition<Input>): Tool {
  const { name, title, toolset, capabilities, annotations, input, output } = definition
  const { aliases } = definition
  const toCheck = toolset === 'execute' ? compile : compileLater
  const check: CheckArguments<Static<Input>> = toCheck(input, { lenient: true, ...(aliases && { aliases }) })
  return {
    name,
    toolset,
    capabilities,
    mirrored: mirroredIn(input, []),
    offered: (profile) => definition.offered?.(profile) ?? true,
    listing: (profile, offers, software = noSoftware) => ({
      name,
      title,
      description: definition.describe(profile, offers, software),
      inputSchema: definition.narrow(input, profile),
      ...(output && { outputSchema: output }),
      annotations,
    }),
    call: async (caller, given, context) => {
      const warnings: Content[] = []
      const run = async (allowed: ToolContext) => {
        const arguments_ = check(given, (text) => warnings.push({ type: 'text', text }))
        const result = await definition.run(caller, arguments_, allowed)
        return warnings.length === 0 ? result : { ...result, content: [...result.content, ...warnings] }
      }
      const isRedacted = definition.redacted ?? caller.profile.calls.redactOutput
      return isRedacted ? redactedCall(caller, context, run) : run(context)
    },
  }
}

/** Arguments marked `x-mcp-header`, reachable through `properties` alone: https://modelcontextprotocol.io/seps/2243-http-standardization */
export function mirroredIn(schema: object, path: readonly string[]): MirroredArgument[] {
  const { properties = {} } = schema as { properties?: Record<string, { 'x-mcp-header'?: unknown }> }
  return Object.entries(properties).flatMap(([name, property]) => {
    const header = property['x-mcp-header']
    const own = typeof header === 'string' ? [{ path: [...path, name], header: header.toLowerCase() }] : []
    return [...own, ...mirroredIn(property, [...path, name])]
  })
}

/** A refusal as a result that the model sees. */
export const errorContent = ({ message, hint }: Refusal): ToolResult => ({
  content: [{ type: 'text', text: `${message} ${hint}` }],
  isError: true,
})

/** @throws Refusal `unknown_tool`. */
export function unknownTool(name: string): never {
  throw new Refusal('unknown_tool', { tool: name.slice(0, 128) })
}
