/** A tool of an upstream, as the upstream describes it. */
export interface UpstreamTool {
  name: string
  title?: string
  description?: string
  inputSchema: object
  outputSchema?: object
  annotations?: Readonly<Record<string, unknown>>
}

export interface UpstreamPrompt {
  name: string
  title?: string
  description?: string
  arguments?: readonly { name: string; description?: string | undefined; required?: boolean | undefined }[]
}

export interface UpstreamResource {
  name: string
  title?: string
  description?: string
  mimeType?: string
}

/** The tools, prompts and resources of an upstream, from all pages. */
export interface UpstreamListing {
  tools: readonly UpstreamTool[]
  prompts: readonly UpstreamPrompt[]
  resources: readonly (UpstreamResource & { uri: string })[]
  /** Absent in listings that an earlier version has stored. */
  templates?: readonly (UpstreamResource & { uriTemplate: string })[]
  /** Name and version of the server, as it reports them. */
  server: string
}

/** Returns the names of the tools in `current` that are missing in `approved` or differ from it, in order. */
export function changedTools(approved: UpstreamListing, current: UpstreamListing): string[] {
  const known = new Map(approved.tools.map((tool) => [tool.name, canonical(tool)]))
  return current.tools.filter((tool) => known.get(tool.name) !== canonical(tool)).map(({ name }) => name)
}

/**
 * Compares what an upstream lists with what was approved; a first listing is approved.
 * @param stored the approved listing as JSON.
 * @returns the listings to store, and the numbers for the audit log.
 */
export function readAgain(stored: string | null, current: UpstreamListing) {
  const approved = stored === null ? current : (JSON.parse(stored) as UpstreamListing)
  const changed = changedTools(approved, current)
  const remaining = new Set(current.tools.map(({ name }) => name))
  const kept = { ...current, tools: approved.tools.filter(({ name }) => remaining.has(name)) }
  const changedListing = changed.length === 0 ? null : JSON.stringify(current)
  return {
    changes: { listing: JSON.stringify(kept), changedListing },
    details: { tools: current.tools.length, changed },
  }
}

/** Hints of the protocol; the client with which tools are read drops others. */
const hints = ['title', 'readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint']

/** Returns what a tool says about itself as one text, for a tool as it was received and as it is stored. */
export function toolText(tool: object): string {
  const { name, title, description, inputSchema, outputSchema, annotations } = tool as Record<string, unknown>
  const known = Object.entries((annotations ?? {}) as object).filter(([hint]) => hints.includes(hint))
  const said = { name, title, description, inputSchema, outputSchema: naturalRoot(outputSchema) }
  return canonical({ ...said, annotations: Object.fromEntries(known) })
}

/**
 * Servers wrap the schema of a result that is no object for clients of the versions up to 2025-11-25:
 * https://modelcontextprotocol.io/seps/2106-json-schema-2020-12
 */
function naturalRoot(schema: unknown): unknown {
  const { type, properties, required, ...more } = (schema ?? {}) as Record<string, unknown>
  const wrapped = Object.entries((properties ?? {}) as object)
  const isWrapped = type === 'object' && canonical([required, more]) === '[["result"],{}]'
  return isWrapped && wrapped.length === 1 && wrapped[0]![0] === 'result' ? wrapped[0]![1] : schema
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
  /<!--/,
  /\byou (?:must|should) (?:always |first )?(?:call|use|invoke) this tool (?:before|instead)/i,
  // Invisible characters, and those that change the direction of text.
  /[\u{E0000}-\u{E007F}\u200B-\u200F\u202A-\u202E\u2060-\u2069\uFEFF]/u,
]

/** Returns the names of the tools whose description, title, schemas or annotations read like instructions to a model. */
export const suspiciousTools = ({ tools }: UpstreamListing): string[] =>
  tools.filter((tool) => instructions.some((pattern) => pattern.test(JSON.stringify(tool)))).map(({ name }) => name)
