import type { Content } from '../../src/tools/content.ts'
import type { InputRequest } from '../../src/tools/request-context.ts'
import type { MirroredArgument, Tool, ToolContext, ToolResult } from '../../src/tools/tool.ts'

type Arguments = Readonly<Record<string, unknown>>

/** A tool of the conformance suite's own fixture: its arguments are not checked, its results are fixed. */
export function fixtureTool(
  name: string,
  description: string,
  answer: (given: Arguments, context: ToolContext) => Promise<Content[]> | Content[],
  more: { inputSchema?: object; mirrored?: readonly MirroredArgument[] } = {},
): Tool {
  return {
    name,
    toolset: 'execute',
    capabilities: [],
    mirrored: more.mirrored ?? [],
    offered: () => true,
    listing: () => ({
      name,
      title: name,
      description,
      inputSchema: more.inputSchema ?? { type: 'object', properties: {} },
      annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
    }),
    call: async (_caller, given, context): Promise<ToolResult> => {
      try {
        return { content: await answer(given as Arguments, context), isError: false }
      } catch (error) {
        if (error instanceof FixtureFailure) return { content: [text(error.message)], isError: true }
        throw error
      }
    },
  }
}

/** Returns a tool result that is marked as an error. */
export class FixtureFailure extends Error {}

export const text = (value: string): Content => ({ type: 'text', text: value })

/** A red pixel. */
export const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=='
/** Silence. */
export const wav = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA='

export const form = (message: string, properties: object, required: readonly string[] = Object.keys(properties)) =>
  ({
    method: 'elicitation/create',
    params: { mode: 'form', message, requestedSchema: { type: 'object', properties, required } },
  }) as const satisfies InputRequest

export const sampling = (prompt: string, maxTokens: number) =>
  ({
    method: 'sampling/createMessage',
    params: { messages: [{ role: 'user', content: { type: 'text', text: prompt } }], maxTokens },
  }) as const satisfies InputRequest

export const roots = { method: 'roots/list', params: {} } as const satisfies InputRequest
