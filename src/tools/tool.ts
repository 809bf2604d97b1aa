import type { Static, TObject } from 'typebox'
import { Refusal } from '../base/errors.ts'
import type { Profile } from '../base/profile.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import { type CheckArguments, compile } from './arguments.ts'

export const toolsets = ['execute', 'files'] as const
export type Toolset = (typeof toolsets)[number]

/** What a tool answers: for a person or a model, and for a program. */
export interface ToolResult {
  content: { type: 'text'; text: string }[]
  structuredContent: Record<string, unknown>
  isError: boolean
}

export interface ToolContext {
  core: Core
  /** Aborts when the call is cancelled; the tool then still answers. */
  signal: AbortSignal
  /** The call goes on when its client disconnects. */
  detached: boolean
  /** Called once the call was taken: what goes wrong from then on is a result, not a refusal. */
  started?: () => void
  /** Text as it is printed; resolves when there is room for more. Nobody listens when it is absent. */
  progress?: (text: string) => Promise<void>
}

/** MCP's hints about a tool: https://modelcontextprotocol.io/specification/2025-11-25/server/tools */
export interface Annotations {
  readOnlyHint: boolean
  destructiveHint: boolean
  idempotentHint: boolean
  openWorldHint?: boolean
}

interface ToolDefinition<Input extends TObject> {
  name: string
  title: string
  toolset: Toolset
  annotations: Annotations
  /** Written for the model that chooses a tool. */
  describe(profile: Profile): string
  /** Every argument there is; a profile may narrow what `tools/list` shows, never what this allows. */
  input: Input
  /** The input as it holds for a profile. */
  narrow(input: Input, profile: Profile): object
  output: TObject
  /** @throws Refusal when the arguments break a rule that a schema can't say. */
  run(caller: Caller, input: Static<Input>, context: ToolContext): Promise<ToolResult>
}

/** A tool as the catalog holds it: what kind of input it takes is its own affair. */
export interface Tool {
  readonly name: string
  readonly toolset: Toolset
  /** As `tools/list` shows it to a key of this profile. */
  listing(profile: Profile): ToolListing
  /** @throws Refusal `invalid_argument` that names the field, or whatever the tool refuses. */
  call(caller: Caller, input: unknown, context: ToolContext): Promise<ToolResult>
}

export interface ToolListing {
  name: string
  title: string
  description: string
  inputSchema: object
  outputSchema: object
  annotations: Annotations
}

/** Defines a tool, once: its listing, its check and its documentation come from here. The check is compiled now. */
export function tool<Input extends TObject>(definition: ToolDefinition<Input>): Tool {
  const { name, title, toolset, annotations, input, output } = definition
  const check: CheckArguments<Static<Input>> = compile(input)
  return {
    name,
    toolset,
    listing: (profile) => ({
      name,
      title,
      description: definition.describe(profile),
      inputSchema: definition.narrow(input, profile),
      outputSchema: output,
      annotations,
    }),
    call: async (caller, given, context) => definition.run(caller, check(given), context),
  }
}

/** @throws Refusal `unknown_tool`. */
export function unknownTool(name: string): never {
  throw new Refusal('unknown_tool', { tool: name.slice(0, 128) })
}
