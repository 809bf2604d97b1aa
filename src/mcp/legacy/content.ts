import type { Content } from '../../tools/content.ts'
import type { ToolResult } from '../../tools/tool.ts'
import type { LegacyVersion } from '../era.ts'

/** The version that added a content type: https://modelcontextprotocol.io/specification/2025-06-18/changelog */
const addedIn: Partial<Record<Content['type'], LegacyVersion>> = { audio: '2025-03-26', resource_link: '2025-06-18' }

/** Replaces content that a protocol version does not have by text. */
export function downgradeContent(version: LegacyVersion, result: ToolResult): ToolResult {
  const isNewer = ({ type }: Content) => version < (addedIn[type] ?? version)
  if (!result.content.some(isNewer)) return result
  return { ...result, content: result.content.map((item) => (isNewer(item) ? toTextContent(item) : item)) }
}

function toTextContent(item: Content): Content {
  switch (item.type) {
    case 'resource_link':
      return { type: 'text', text: `${item.name}${item.description ? ` (${item.description})` : ''}: ${item.uri}` }
    case 'audio':
      return { type: 'text', text: `Audio (${item.mimeType}), which this protocol version does not support.` }
    case 'text':
    case 'image':
    case 'resource':
      return item
  }
}
