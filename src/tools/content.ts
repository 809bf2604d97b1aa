/** What tools, prompts and resources answer with: https://modelcontextprotocol.io/specification/2026-07-28/server/tools */
export type Content =
  | { type: 'text'; text: string }
  /** `data` is base64. */
  | { type: 'image' | 'audio'; data: string; mimeType: string }
  | { type: 'resource'; resource: ResourceContents }
  | { type: 'resource_link'; uri: string; name: string; mimeType?: string; description?: string }

export type ResourceContents =
  | { uri: string; mimeType: string; text: string }
  /** `blob` is base64. */
  | { uri: string; mimeType: string; blob: string }
