import { Refusal } from '../base/errors.ts'
import type { ToolResult } from '../tools/tool.ts'

/**
 * Turns arguments that break a rule into a result that the model sees, so that it can mend its call; anything else
 * stays an error. https://modelcontextprotocol.io/specification/2026-07-28/server/tools
 * @throws whatever is not the arguments' fault.
 */
export function mendable(error: unknown): ToolResult {
  if (!(error instanceof Refusal) || error.row.error !== 'validation_error') throw error
  return errorResult(error)
}

export const errorResult = ({ message, hint }: Refusal): ToolResult => ({
  content: [{ type: 'text', text: `${message} ${hint}` }],
  isError: true,
})
