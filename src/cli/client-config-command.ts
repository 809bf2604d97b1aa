/** `glovebox config CLIENT`: how an MCP client connects to this server. */
import { mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname } from 'node:path'
import { type ClientEndpoint, isMcpClient, type McpClientName, mcpClientNames } from '../gateway/client-config.ts'
import { type ServerOptions, serverOf } from './api-client.ts'
import { ClientError } from './client-error.ts'
import { diffOf, entryText, fileOf, mergedText } from './client-file.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'

export interface ClientConfigOptions extends ServerOptions {
  /** Name of an upstream; the own endpoint if it is absent. */
  upstream?: string
  all?: boolean
  file?: string
  write?: boolean
}

/** Prints the entry for a client, or merges it into the file of the client. @returns the exit code. @throws ClientError. */
export async function clientConfigCommand(
  client: string,
  options: ClientConfigOptions,
  io: ProcessIo,
): Promise<number> {
  if (!isMcpClient(client)) {
    throw new ClientError(`unknown client ${client}; known are ${mcpClientNames.join(', ')}`, exitCodes.usage)
  }
  const endpoint = await endpointOf(options, io)
  if (!options.write) {
    io.stdout.write(entryText(client, endpoint))
    return exitCodes.ok
  }
  const file = options.file ?? fileOf(client, io.env.HOME ?? homedir(), process.platform, io.env.APPDATA ?? '')
  if (file === undefined)
    throw new ClientError(`the file of ${client} has no fixed place; give it with --file`, exitCodes.usage)
  write(client, file, endpoint, io)
  return exitCodes.ok
}

async function endpointOf({ upstream, all, ...server }: ClientConfigOptions, io: ProcessIo): Promise<ClientEndpoint> {
  const { url, key = null } = await serverOf(server, io)
  if (upstream !== undefined)
    return { name: upstream.split('/').at(-1) ?? upstream, url: `${url}/${upstream}/sse`, key }
  return { name: 'glovebox', url: url + (all ? '/v1/mcp' : '/mcp'), key }
}

/** Shows what changes, and replaces the file at once, so that a client never reads half of it. */
function write(client: McpClientName, file: string, endpoint: ClientEndpoint, { stdout, stderr }: ProcessIo): void {
  const before = readText(file)
  const after = mergedText(client, before, endpoint)
  if (before === after) {
    stderr.write(`${file} has this entry already.\n`)
    return
  }
  stdout.write(`${file}\n${diffOf(before, after, endpoint.key)}\n`)
  try {
    mkdirSync(dirname(file), { recursive: true })
    // The file contains the key.
    const mode = statSync(file, { throwIfNoEntry: false })?.mode ?? 0o600
    writeFileSync(`${file}.new`, after, { mode })
    renameSync(`${file}.new`, file)
  } catch (error) {
    throw new ClientError(`cannot write ${file}: ${(error as Error).message}`, exitCodes.cannotCreate)
  }
  stderr.write(`Changed ${file}. Restart the client to apply it.\n`)
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return ''
    throw new ClientError(`cannot read ${file}: ${(error as Error).message}`, exitCodes.noInput)
  }
}
