/** Reads the servers in the configuration files of MCP clients, and in `server.json` of the MCP registry. */
import { Refusal } from '../base/errors.ts'
import { upstreamName } from '../core/upstreams/grants.ts'
import { entryOfRegistry } from './import-registry.ts'
import { isObject, type Json } from './json-object.ts'

/** A server of a configuration file that can be registered as an upstream. */
export type ImportedServer = { name: string; description?: string } & (
  | { transport: 'http' | 'sse'; url: string; headers: Record<string, string> }
  | { transport: 'stdio'; program: { command: string; args: string[] }; env: Record<string, string> }
)

export interface Imported {
  servers: ImportedServer[]
  /** Servers that cannot be registered, with the reason. */
  skipped: { name: string; reason: string }[]
}

/** Fields that contain the servers, in the files of different clients. */
const listFields = ['mcpServers', 'servers', 'mcp_servers', 'context_servers', 'mcp'] as const
/** Fields that contain the address of a server, in the files of different clients. */
const urlFields = ['url', 'serverUrl', 'httpUrl', 'uri'] as const
const headerFields = ['headers', 'http_headers'] as const

/**
 * BOUNDARY: reads the servers in a configuration file.
 * @param content the parsed file.
 * @param vendor vendor of the servers whose name contains none.
 * @throws Refusal `invalid_argument` if the file contains no servers.
 */
export function importServers(content: unknown, vendor: string): Imported {
  if (isObject(content) && Array.isArray(content.remotes ?? content.packages) && typeof content.name === 'string') {
    const imported: Imported = { servers: [], skipped: [] }
    const name = toName(String(content.name), vendor)
    const entry = entryOfRegistry(content)
    if (typeof entry === 'string') imported.skipped.push({ name, reason: entry })
    else add(imported, name, entry)
    return imported
  }
  const list = isObject(content) ? listFields.map((field) => content[field]).find(isObject) : undefined
  if (list === undefined) {
    throw new Refusal('invalid_argument', {
      field: 'file',
      problem: `has no servers; expected one of ${listFields.join(', ')}, or a server.json of the registry`,
    })
  }
  const imported: Imported = { servers: [], skipped: [] }
  for (const [key, entry] of Object.entries(list)) add(imported, toName(key, vendor), isObject(entry) ? entry : {})
  return imported
}

function add({ servers, skipped }: Imported, name: string, entry: Json): void {
  const server = upstreamName.test(name) ? serverIn(name, entry) : 'its name cannot be written as vendor/name'
  if (typeof server === 'string') skipped.push({ name, reason: server })
  else servers.push(server)
}

/** Returns the server of an entry, or why it cannot be registered. */
function serverIn(name: string, entry: Json): ImportedServer | string {
  const url = urlFields.map((field) => entry[field]).find((value) => typeof value === 'string')
  const described = typeof entry.description === 'string' && { description: entry.description.slice(0, 1_000) }
  if (typeof url !== 'string') {
    const program = programIn(entry)
    return typeof program === 'string' ? program : { name, transport: 'stdio', ...program, ...described }
  }
  const headers = headerFields.map((field) => entry[field]).find(isObject) ?? {}
  const odd = placeholderIn(headers)
  if (odd !== undefined) return `the value of its header ${odd} is a placeholder`
  const transport = entry.type === 'sse' ? 'sse' : 'http'
  return { name, transport, url, headers: headers as Record<string, string>, ...described }
}

/** Programs that need what a sandbox does not have. */
const impossible: readonly string[] = ['docker', 'podman', 'nerdctl']

/** Returns the program of an entry, or why it cannot be registered. */
function programIn(
  entry: Json,
): { program: { command: string; args: string[] }; env: Record<string, string> } | string {
  // Some clients write the command and its arguments as one list.
  const [command, ...first] = Array.isArray(entry.command) ? (entry.command as unknown[]) : [entry.command]
  if (typeof command !== 'string' || command === '') return 'it has no address and no command'
  if (impossible.includes(command.slice(command.lastIndexOf('/') + 1))) {
    return `its command is ${command}, and there are no containers in a sandbox`
  }
  const args = [...first, ...(Array.isArray(entry.args) ? (entry.args as unknown[]) : [])]
  const env = [entry.env, entry.environment].find(isObject) ?? {}
  const oddArg = placeholderIn(Object.fromEntries(args.map((arg, at) => [at + 1, arg])))
  if (oddArg !== undefined) return `its argument ${oddArg} is a placeholder`
  const oddVariable = placeholderIn(env)
  if (oddVariable !== undefined) return `the value of its variable ${oddVariable} is a placeholder`
  return { program: { command, args: args as string[] }, env: env as Record<string, string> }
}

/** Returns the name of a value that is no text, or that the client would replace. */
const placeholderIn = (values: Json): string | undefined =>
  Object.entries(values)
    .find(([, value]) => typeof value !== 'string' || /\$\{|\{[a-z_]+\}/i.test(value))?.[0]
    .slice(0, 64)

/** Converts a name in a configuration file to the name of an upstream: `GitHub Copilot` to `imported/github-copilot`. */
function toName(key: string, vendor: string): string {
  const clean = key.toLowerCase().replaceAll(/[^a-z0-9._/-]+/g, '-')
  return clean.includes('/') ? clean : `${vendor}/${clean}`
}
