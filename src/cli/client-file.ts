import { parse, parseDocument } from 'yaml'
import type { ClientEndpoint, McpClientName } from '../gateway/client-config.ts'
import { clientConfig, codexToml } from '../gateway/client-config.ts'
import { ClientError } from './client-error.ts'
import { exitCodes } from './process-io.ts'

/** The formats of the configuration files of clients. */
type Format = 'json' | 'yaml' | 'toml'

const formatOf = (client: McpClientName): Format =>
  client === 'codex' ? 'toml' : ['continue', 'goose', 'librechat'].includes(client) ? 'yaml' : 'json'

/** Where a client keeps its configuration; `undefined` if this differs between installations. */
export function fileOf(
  client: McpClientName,
  home: string,
  platform: NodeJS.Platform,
  appData: string,
): string | undefined {
  if (client === 'open-webui') return undefined
  const { file } = clientConfig(client, { name: '', url: '', key: null })
  if (client !== 'claude') return file.replace(/^~(?=\/)/, home)
  if (platform === 'darwin') return `${home}/Library/Application Support/Claude/${file}`
  return platform === 'win32' ? `${appData}\\Claude\\${file}` : `${home}/.config/Claude/${file}`
}

/** Returns the entry of a client for an endpoint, in the format of its file. */
export const entryText = (client: McpClientName, endpoint: ClientEndpoint): string => mergedText(client, '', endpoint)

/**
 * Returns the content of a file with the entry for an endpoint, which replaces one of the same name. Everything else in
 * the file remains.
 * @param text content of the file; empty if it does not exist.
 * @throws ClientError if the file cannot be read as the client reads it.
 */
export function mergedText(client: McpClientName, text: string, endpoint: ClientEndpoint): string {
  const { body } = clientConfig(client, endpoint)
  switch (formatOf(client)) {
    case 'json':
      return mergedJson(text, body)
    case 'yaml':
      return mergedYaml(text, body)
    case 'toml':
      return mergedToml(text, endpoint)
  }
}

function mergedJson(text: string, body: Readonly<Record<string, unknown>>): string {
  let old: unknown
  try {
    old = text.trim() === '' ? {} : JSON.parse(text)
  } catch (error) {
    throw unreadable(`it is not plain JSON: ${(error as Error).message}`)
  }
  if (!isObject(old)) throw unreadable('it is not an object')
  const indent = /^([ \t]+)"/m.exec(text)?.[1] ?? '  '
  return `${JSON.stringify(merged(old, body), null, indent)}\n`
}

function merged(old: Readonly<Record<string, unknown>>, body: Readonly<Record<string, unknown>>) {
  const result: Record<string, unknown> = { ...old }
  for (const [field, value] of Object.entries(body)) {
    // A list of servers is extended; other fields, such as the address of a schema, keep the value of the user.
    if (isObject(value)) result[field] = { ...(isObject(old[field]) ? old[field] : {}), ...value }
    else if (Array.isArray(value)) result[field] = extended(old[field], value)
    else result[field] ??= value
  }
  return result
}

/** Returns a list with entries that replace those of the same name. */
function extended(old: unknown, entries: readonly unknown[]): unknown[] {
  const names = entries.map(nameOf)
  const others = (Array.isArray(old) ? (old as unknown[]) : []).filter((item) => !names.includes(nameOf(item)))
  return [...others, ...entries]
}

/** Returns what identifies an entry of a list: the name of Continue, or the ID of Open WebUI. */
const nameOf = (entry: unknown): unknown =>
  isObject(entry) ? (entry.name ?? (isObject(entry.info) ? entry.info.id : undefined)) : undefined

/** Keeps comments and the order of the file. */
function mergedYaml(text: string, body: Readonly<Record<string, unknown>>): string {
  const document = parseDocument(text.trim() === '' ? '{}' : text)
  const [problem] = document.errors
  if (problem) throw unreadable(problem.message.split('\n')[0] ?? '')
  if (text.trim() === '') document.contents = document.createNode({}) as typeof document.contents
  for (const [field, value] of Object.entries(body)) {
    if (Array.isArray(value)) {
      const old: unknown = (parse(text) as Record<string, unknown> | null)?.[field]
      document.set(field, extended(old, value as unknown[]))
    } else if (isObject(value)) {
      for (const [name, entry] of Object.entries(value)) document.setIn([field, name], entry)
    } else if (!document.has(field)) document.set(field, value)
  }
  // Other lines of the file remain as they are.
  return document.toString({ lineWidth: 0, flowCollectionPadding: /[[{] \S/.test(text) })
}

/** Replaces the table of the endpoint with its lines, or adds it at the end. */
function mergedToml(text: string, endpoint: ClientEndpoint): string {
  const table = codexToml(endpoint)
  const headers = [`[mcp_servers.${JSON.stringify(endpoint.name)}]`, `[mcp_servers.${endpoint.name}]`]
  const lines = text.split('\n')
  const start = lines.findIndex((line) => headers.includes(line.trim()))
  if (start === -1) return text.trim() === '' ? table : `${text.trimEnd()}\n\n${table}`
  const next = lines.findIndex((line, index) => index > start && line.trimStart().startsWith('['))
  const after = next === -1 ? [] : ['', ...lines.slice(next)]
  return [...lines.slice(0, start), ...table.trimEnd().split('\n'), ...after].join('\n').replace(/\n*$/, '\n')
}

/**
 * Returns the lines that differ between two texts with one changed place, with three lines around them.
 * @param secret is not shown.
 */
export function diffOf(before: string, after: string, secret: string | null): string {
  const [old, fresh] = [before, after].map((text) => (text === '' ? [] : text.replace(/\n$/, '').split('\n')))
  let start = 0
  while (start < old!.length && start < fresh!.length && old![start] === fresh![start]) start++
  let [oldEnd, freshEnd] = [old!.length, fresh!.length]
  while (oldEnd > start && freshEnd > start && old![oldEnd - 1] === fresh![freshEnd - 1]) {
    oldEnd--
    freshEnd--
  }
  const lines = [
    ...old!.slice(Math.max(start - 3, 0), start).map((line) => `  ${line}`),
    ...old!.slice(start, oldEnd).map((line) => `- ${line}`),
    ...fresh!.slice(start, freshEnd).map((line) => `+ ${line}`),
    ...fresh!.slice(freshEnd, freshEnd + 3).map((line) => `  ${line}`),
  ]
  const text = lines.join('\n')
  return secret === null ? text : text.replaceAll(secret, `${secret.slice(0, 6)}…`)
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const unreadable = (reason: string): ClientError =>
  new ClientError(`cannot change the file, since ${reason}. Add the entry by hand.`, exitCodes.usage)
