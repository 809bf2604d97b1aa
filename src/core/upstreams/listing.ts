/** A tool of an upstream, as the upstream describes it. */
export interface UpstreamTool {
  name: string
  title?: string
  description?: string
  inputSchema: object
  outputSchema?: object
  annotations?: Readonly<Record<string, unknown>>
}

/** The tools, prompts and resources of an upstream, from all pages. */
export interface UpstreamListing {
  tools: readonly UpstreamTool[]
  prompts: readonly { name: string; description?: string }[]
  resources: readonly { name: string; description?: string; uri: string }[]
  /** Name and version of the server, as it reports them. */
  server: string
}

/** Returns the names of the tools in `current` that are missing in `approved` or differ from it, in order. */
export function changedTools(approved: UpstreamListing, current: UpstreamListing): string[] {
  const known = new Map(approved.tools.map((tool) => [tool.name, canonical(tool)]))
  return current.tools.filter((tool) => known.get(tool.name) !== canonical(tool)).map(({ name }) => name)
}

/** Serializes a value with sorted properties, so that equal values have the same text. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_name, part: unknown) =>
    typeof part === 'object' && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  )
}

/** Signs of an attack by a tool description: text that addresses the model instead of describing the tool. */
const instructions: readonly RegExp[] = [
  /\bignore (?:all |any )?(?:previous|prior|other) (?:instructions|tools|messages)/i,
  /\bdo not (?:tell|inform|mention|reveal|show)\b.{0,40}\b(?:user|human)\b/i,
  /<\s*(?:important|system|instructions?|secret)\s*>/i,
  /\bbefore (?:using|calling) (?:this|any other) tool\b.{0,80}\b(?:read|send|pass|include)\b/i,
  /[\u{E0000}-\u{E007F}\u200B\u2060\u2063]/u,
]

/** Returns the names of the tools whose description or input schema reads like instructions to a model. */
export const suspiciousTools = ({ tools }: UpstreamListing): string[] =>
  tools
    .filter((tool) =>
      instructions.some((pattern) => pattern.test(JSON.stringify([tool.description, tool.inputSchema]))),
    )
    .map(({ name }) => name)
