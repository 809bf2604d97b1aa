import { hash } from 'node:crypto'
import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../../core/caller.ts'
import type { UpstreamTool } from '../../core/upstreams/listing.ts'
import type { OfferedUpstream } from '../../core/upstreams/upstreams.ts'
import type { Gateway } from '../../gateway/gateway.ts'
import type { CallableTool } from '../catalog.ts'
import type { Content } from '../content.ts'
import { type ToolContext, type ToolListing, type ToolResult, unknownTool } from '../tool.ts'

/** Clients reject longer names. */
const nameMax = 64
const hashLength = 8

/** A tool of an upstream under its name here. */
export interface NamedTool {
  name: string
  upstream: string
  tool: UpstreamTool
}

/**
 * Returns the name of a tool of an upstream: `vendor_name__tool`. Characters that clients reject are replaced, and a name
 * that is not unique or too long ends with a short hash.
 */
export function nameOf(upstream: string, tool: string, isTaken: (name: string) => boolean): string {
  const plain = `${upstream}__${tool}`.replaceAll(/[^A-Za-z0-9_-]/g, '_')
  if (plain.length <= nameMax && !isTaken(plain)) return plain
  const suffix = hash('sha256', `${upstream} ${tool}`).slice(0, hashLength)
  return `${plain.slice(0, nameMax - hashLength - 1)}_${suffix}`
}

/** Names the tools of upstreams. An upstream that was never read has none. */
export function namedTools(upstreams: readonly OfferedUpstream[], ownTools: readonly string[]): NamedTool[] {
  const taken = new Set(ownTools)
  const named: NamedTool[] = []
  for (const { name: upstream, listing } of upstreams) {
    for (const tool of listing?.tools ?? []) {
      const name = nameOf(upstream, tool.name, (candidate) => taken.has(candidate))
      if (taken.has(name)) continue
      taken.add(name)
      named.push({ name, upstream, tool })
    }
  }
  return named
}

/** A key that may not use upstreams sees none, and keeps its own tools. */
export async function upstreamsOf(gateway: Gateway, caller: Caller): Promise<OfferedUpstream[]> {
  try {
    return await gateway.list(caller)
  } catch (error) {
    if (error instanceof Refusal && error.code === 'permission_denied') return []
    throw error
  }
}

/** Returns how `tools/list` shows a tool of an upstream. */
export function listingOf({ name, upstream, tool }: NamedTool): ToolListing {
  const { title = tool.name, description = '', inputSchema, outputSchema, annotations } = tool
  return {
    ...{ name, title, description: `${description}\n\n(${tool.name} of ${upstream})`.trim(), inputSchema },
    ...(outputSchema && { outputSchema }),
    annotations: {
      readOnlyHint: annotations?.readOnlyHint === true,
      destructiveHint: annotations?.destructiveHint !== false,
      idempotentHint: annotations?.idempotentHint === true,
      openWorldHint: true,
    },
  }
}

/** Returns a tool that calls the one of the upstream. */
export const toTool = (gateway: Gateway, { name, upstream, tool }: NamedTool): CallableTool => ({
  name,
  call: async (caller, given, context) => {
    const outcome = await gateway.callTool(
      caller,
      { upstream, tool: tool.name, given },
      context.signal,
      progressOf(context),
    )
    return toResult(upstream, outcome)
  },
})

const progressOf = ({ progress }: ToolContext): Parameters<Gateway['callTool']>[3] =>
  progress &&
  (({ progress: done, total, message = '' }) => progress({ message, done, ...(total !== undefined && { total }) }))

/** An error of the upstream is a result, so that a model can read it and correct its call. */
function toResult(upstream: string, outcome: Awaited<ReturnType<Gateway['callTool']>>): ToolResult {
  if (outcome.kind === 'error') {
    return { content: [{ type: 'text', text: `${upstream}: ${outcome.message} (${outcome.code})` }], isError: true }
  }
  const { content, structuredContent, isError } = outcome.result
  return {
    content: Array.isArray(content) ? (content as Content[]) : [],
    ...(typeof structuredContent === 'object' &&
      structuredContent !== null && { structuredContent: structuredContent as Record<string, unknown> }),
    isError: isError === true,
  }
}

/** @throws Refusal `unknown_tool`. */
export const findTool = (tools: readonly NamedTool[], name: string): NamedTool =>
  tools.find((tool) => tool.name === name) ?? unknownTool(name)
