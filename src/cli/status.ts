/** `glovebox status`: whether a server can run code for this caller, and what it has. */
import type { Command } from 'commander'
import {
  everyListed,
  reporting,
  requestJson,
  type Server,
  type ServerOptions,
  send,
  serverOf,
  withServer,
} from './api-client.ts'
import { ClientError } from './client-error.ts'
import { type Cli, withExamples } from './command.ts'
import { printFields, withJson } from './output.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'

type Options = ServerOptions & { json?: boolean }

export function register(program: Command, { io, exit }: Cli): void {
  withExamples(
    withServer(
      withJson(program.command('status').description('Print whether a server can run code, and what it has.')),
    ),
    'glovebox status',
    'glovebox status --url https://code.example --key-file ~/.glovebox-key',
  ).action(async (options: Options) => exit(await status(options, io)))
}

interface Status {
  url: string
  version: string
  ready: boolean
  /** Why it is not ready. */
  reason: string | null
  /** Whether the caller is admitted, and how. */
  access: 'no key required' | 'key accepted' | 'key required' | 'key refused'
  running: number | null
  threads: number | null
  /** Those that runs mount, as `slug:mode`. */
  volumes: string[] | null
}

const fields: Readonly<Record<string, (status: Status) => string | undefined>> = {
  server: ({ url }) => url,
  version: ({ version }) => version,
  state: ({ ready, reason }) => (ready ? 'ready' : `not ready: ${reason}`),
  access: ({ access }) => access,
  'running runs': ({ running }) => running?.toString(),
  threads: ({ threads }) => threads?.toString(),
  volumes: ({ volumes }) => (volumes === null ? undefined : volumes.join(', ') || 'none'),
}

/** @returns 0 if runs can start: 69 without a server or if it is not ready, 77 if it does not admit the caller. */
const status = (options: Options, io: ProcessIo): Promise<number> =>
  reporting('status', io, async () => {
    const found = await statusOf(await serverOf(options, io))
    printFields(found, fields, options, io)
    if (found.access === 'key required' || found.access === 'key refused') return exitCodes.noPermission
    return found.ready ? exitCodes.ok : exitCodes.unavailable
  })

async function statusOf(server: Server): Promise<Status> {
  const readiness = (await (await send(server, '/readyz')).json()) as { status: string; reason?: string }
  const { info } = await requestJson<{ info: { version: string } }>(server, '/openapi.json')
  return {
    url: server.url,
    version: info.version,
    ready: readiness.status === 'ready',
    reason: readiness.reason ?? null,
    ...(await contentOf(server)),
  }
}

/** A key that is limited to some tools may not read everything. */
async function contentOf(server: Server): Promise<Pick<Status, 'access' | 'running' | 'threads' | 'volumes'>> {
  try {
    const running = await countOf(server, '/v1/executions?status=running')
    const volumes = await permitted(async () => {
      const found: string[] = []
      for await (const { slug, mode } of everyListed<{ slug: string; mode: string }>(server, '/v1/volumes')) {
        found.push(`${slug}:${mode}`)
      }
      return found
    })
    const threads = await countOf(server, '/v1/threads')
    return { access: server.key === undefined ? 'no key required' : 'key accepted', running, threads, volumes }
  } catch (error) {
    if (!(error instanceof ClientError && error.code === 'unauthorized')) throw error
    const access = server.key === undefined ? 'key required' : 'key refused'
    return { access, running: null, threads: null, volumes: null }
  }
}

const countOf = (server: Server, path: string): Promise<number | null> =>
  permitted(async () => {
    let count = 0
    for await (const _ of everyListed(server, path)) count++
    return count
  })

/** @returns `null` for what this key may not read, or the profile does not have. */
async function permitted<Result>(read: () => Promise<Result>): Promise<Result | null> {
  try {
    return await read()
  } catch (error) {
    if (error instanceof ClientError && error.code !== 'unauthorized' && error.exitCode !== exitCodes.unavailable) {
      return null
    }
    throw error
  }
}
