import { reporting, request, requestJson, serverOf } from '../api-client.ts'
import { ClientError } from '../client-error.ts'
import { type Columns, printItems, printJson } from '../output.ts'
import { exitCodes, type ProcessIo } from '../process-io.ts'
import { pathOf, type SandboxOptions, suffixOf } from './paths.ts'

export interface OpenOptions extends SandboxOptions {
  public?: boolean
  expires?: string
}

interface Port {
  port: number
  access: string
  url: string
  open_url: string
  expires_at: string
}

const columns: Columns<Port> = {
  PORT: ({ port }) => `${port}`,
  ACCESS: ({ access }) => access,
  EXPIRES: ({ expires_at: at }) => at,
  URL: ({ url }) => url,
}

/** Lists the published ports of a sandbox. */
export const listPorts = (name: string, options: SandboxOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox ports', io, async () => {
    const path = `${pathOf(name)}/ports${suffixOf(options)}`
    const { data } = await requestJson<{ data: Port[] }>(await serverOf(options, io), path)
    printItems(data, columns, options, io)
    return exitCodes.ok
  })

/** Publishes a port and prints an address for browsers. */
export const openPort = (name: string, port: string, options: OpenOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox open', io, async () => {
    const body = {
      port: toNumber(port, 'the port'),
      access: options.public ? 'public' : 'key',
      ...(options.expires !== undefined && { expires_in: toNumber(options.expires, '--expires') }),
    }
    const path = `${pathOf(name)}/ports${suffixOf(options)}`
    const published = await requestJson<Port>(await serverOf(options, io), path, { body })
    if (options.json) printJson(published, io)
    else io.stdout.write(`${published.open_url}\n`)
    return exitCodes.ok
  })

/** Withdraws a published port. */
export const closePort = (name: string, port: string, options: SandboxOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox close', io, async () => {
    const path = `${pathOf(name)}/ports/${toNumber(port, 'the port')}${suffixOf(options)}`
    await request(await serverOf(options, io), path, { method: 'DELETE' })
    if (options.json) printJson({ closed: Number(port) }, io)
    else io.stdout.write(`Port ${port} is withdrawn.\n`)
    return exitCodes.ok
  })

function toNumber(text: string, what: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text)
  throw new ClientError(`${what} must be a number`, exitCodes.usage)
}
