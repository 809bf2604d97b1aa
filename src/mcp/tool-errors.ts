import { Refusal } from '../base/errors.ts'
import type { ToolResult } from '../tools/tool.ts'

/**
 * Converts invalid arguments into a tool result, which the model sees and can correct. Rethrows any other error.
 * https://modelcontextprotocol.io/specification/2026-07-28/server/tools
 */
export function toToolErrorResult(error: unknown): ToolResult {
  if (!(error instanceof Refusal) || error.row.error !== 'validation_error') throw error
  return errorResult(error)
}

export const errorResult = ({ message, hint }: Refusal): ToolResult => ({
  content: [{ type: 'text', text: `${message} ${hint}` }],
  isError: true,
})
