/** Reads the servers in the configuration files of MCP clients, and in `server.json` of the MCP registry. */
import { Refusal } from '../base/errors.ts'
import { upstreamName } from '../core/upstreams/grants.ts'

/** A server of a configuration file that can be registered as an upstream. */
export interface ImportedServer {
  name: string
  url: string
  description?: string
  headers: Record<string, string>
}

export interface Imported {
  servers: ImportedServer[]
  /** Servers that cannot be registered, with the reason. */
  skipped: { name: string; reason: string }[]
}

type Json = Record<string, unknown>

const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value)

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
    return fromRegistry(content, vendor)
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

/**
 * Reads a `server.json` of the registry.
 * https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/server-json/generic-server-json.md
 */
function fromRegistry(content: Json, vendor: string): Imported {
  const imported: Imported = { servers: [], skipped: [] }
  const name = toName(String(content.name), vendor)
  const remotes = Array.isArray(content.remotes) ? content.remotes.filter(isObject) : []
  const remote = remotes.find(({ type }) => type === 'streamable-http')
  if (remote === undefined) {
    imported.skipped.push({ name, reason: 'it has no remote of the type streamable-http' })
    return imported
  }
  const headers = (Array.isArray(remote.headers) ? remote.headers : []).filter(isObject)
  add(imported, name, {
    url: remote.url,
    description: content.description,
    headers: Object.fromEntries(headers.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]]))),
  })
  return imported
}

function add({ servers, skipped }: Imported, name: string, entry: Json): void {
  const skip = (reason: string): void => {
    skipped.push({ name, reason })
  }
  const url = urlFields.map((field) => entry[field]).find((value) => typeof value === 'string')
  if (typeof url !== 'string') {
    skip(entry.command === undefined ? 'it has no address' : 'it is a program, not an address')
    return
  }
  if (entry.type === 'sse') {
    skip('it uses the SSE transport of 2024-11-05')
    return
  }
  if (!upstreamName.test(name)) {
    skip('its name cannot be written as vendor/name')
    return
  }
  const headers = headerFields.map((field) => entry[field]).find(isObject) ?? {}
  const odd = Object.entries(headers).find(([, value]) => typeof value !== 'string' || /\$\{|\{[a-z_]+\}/i.test(value))
  if (odd) {
    skip(`the value of its header ${odd[0].slice(0, 64)} is a placeholder`)
    return
  }
  servers.push({
    ...{ name, url, headers: headers as Record<string, string> },
    ...(typeof entry.description === 'string' && { description: entry.description.slice(0, 1_000) }),
  })
}

/** Converts a name in a configuration file to the name of an upstream: `GitHub Copilot` to `imported/github-copilot`. */
function toName(key: string, vendor: string): string {
  const clean = key.toLowerCase().replaceAll(/[^a-z0-9._/-]+/g, '-')
  return clean.includes('/') ? clean : `${vendor}/${clean}`
}
