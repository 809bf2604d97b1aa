import type { Content } from '../../tools/content.ts'
import type { ToolResult } from '../../tools/tool.ts'
import type { LegacyVersion } from '../era.ts'

/** Content that came later than 2024-11-05, by the version that brought it: https://modelcontextprotocol.io/specification/2025-06-18/changelog */
const since: Partial<Record<Content['type'], LegacyVersion>> = { audio: '2025-03-26', resource_link: '2025-06-18' }

/** A result as a client of this version can read it: what it has no form for is said as text. */
export function asKnownIn(version: LegacyVersion, result: ToolResult): ToolResult {
  const isNewer = ({ type }: Content) => version < (since[type] ?? version)
  if (!result.content.some(isNewer)) return result
  return { ...result, content: result.content.map((item) => (isNewer(item) ? inText(item) : item)) }
}

function inText(item: Content): Content {
  switch (item.type) {
    case 'resource_link':
      return { type: 'text', text: `${item.name}${item.description ? ` (${item.description})` : ''}: ${item.uri}` }
    case 'audio':
      return { type: 'text', text: `audio (${item.mimeType}), which this version of the protocol has no form for` }
    case 'text':
    case 'image':
    case 'resource':
      return item
  }
}
