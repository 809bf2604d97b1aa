/** A tool of an upstream, as the upstream describes it. */
export interface UpstreamTool {
  name: string
  title?: string
  description?: string
  inputSchema: object
  outputSchema?: object
  annotations?: Readonly<Record<string, unknown>>
}

/** What an upstream offers, all pages together. */
export interface UpstreamListing {
  tools: readonly UpstreamTool[]
  prompts: readonly { name: string; description?: string }[]
  resources: readonly { name: string; description?: string; uri: string }[]
  /** Name and version of the server, as it reports them. */
  server: string
}

/** Returns the names of tools that are not in `approved` as they are in `current`, in order. */
export function changedTools(approved: UpstreamListing, current: UpstreamListing): string[] {
  const known = new Map(approved.tools.map((tool) => [tool.name, canonical(tool)]))
  return current.tools.filter((tool) => known.get(tool.name) !== canonical(tool)).map(({ name }) => name)
}

/** Returns the same text for equal values, whatever the order of their properties. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_name, part: unknown) =>
    typeof part === 'object' && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  )
}

/** Instructions to a model in a description are a sign of an attack: they address the model instead of describing the tool. */
const instructions: readonly RegExp[] = [
  /\bignore (?:all |any )?(?:previous|prior|other) (?:instructions|tools|messages)/i,
  /\bdo not (?:tell|inform|mention|reveal|show)\b.{0,40}\b(?:user|human)\b/i,
  /<\s*(?:important|system|instructions?|secret)\s*>/i,
  /\bbefore (?:using|calling) (?:this|any other) tool\b.{0,80}\b(?:read|send|pass|include)\b/i,
  /[\u{E0000}-\u{E007F}\u200B\u2060\u2063]/u,
]

/** Returns the names of tools whose description contains text that reads like instructions to a model. */
export const suspiciousTools = ({ tools }: UpstreamListing): string[] =>
  tools
    .filter((tool) =>
      instructions.some((pattern) => pattern.test(JSON.stringify([tool.description, tool.inputSchema]))),
    )
    .map(({ name }) => name)
