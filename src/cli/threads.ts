/** `glovebox threads`: the threads of a server. */
import type { Command } from 'commander'
import { everyListed, reporting, request, requestJson, type ServerOptions, serverOf, withServer } from './api-client.ts'
import { type Cli, withExamples } from './command.ts'
import { type Columns, printItems, printJson, withJson } from './output.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { printable } from './terminal.ts'

interface Thread {
  id: string
  size_bytes: number
  created_at: string
  last_used_at: string
  busy: boolean
}

type Options = ServerOptions & { json?: boolean }

export function register(program: Command, { io, exit }: Cli): void {
  const threads = program.command('threads').description('List, copy and delete the threads of a server.')
  const add = (usage: string, description: string) =>
    withServer(withJson(threads.command(usage).description(description)))
  withExamples(add('ls', 'List all threads.').alias('list'), 'glovebox threads ls').action(async (options: Options) =>
    exit(await list(options, io)),
  )
  withExamples(
    add('fork <thread> <copy>', 'Copy a thread with all its files. The copy must not exist.'),
    'glovebox threads fork analysis analysis-2',
  ).action(async (from: string, to: string, options: Options) => exit(await fork(from, to, options, io)))
  withExamples(
    add('rm <threads...>', 'Delete threads with all their files.').alias('delete'),
    'glovebox threads rm analysis-2',
  ).action(async (ids: string[], options: Options) => exit(await remove(ids, options, io)))
}

const columns: Columns<Thread> = {
  THREAD: ({ id }) => id,
  BYTES: ({ size_bytes: bytes }) => `${bytes}`,
  CREATED: ({ created_at: at }) => at,
  'LAST USED': ({ last_used_at: at }) => at,
  STATE: ({ busy }) => (busy ? 'busy' : 'idle'),
}

const list = (options: Options, io: ProcessIo): Promise<number> =>
  reporting('threads ls', io, async () => {
    const threads: Thread[] = []
    for await (const thread of everyListed<Thread>(await serverOf(options, io), '/v1/threads')) threads.push(thread)
    printItems(threads, columns, options, io)
    return exitCodes.ok
  })

/** The path of a thread. An id of dots alone would be another path; no thread has one. */
const pathOf = (id: string): string => `/v1/threads/${/^\.+$/.test(id) ? `%22${id}%22` : encodeURIComponent(id)}`

const fork = (from: string, to: string, options: Options, io: ProcessIo): Promise<number> =>
  reporting('threads fork', io, async () => {
    const copy = await requestJson<Thread>(await serverOf(options, io), `${pathOf(from)}/fork`, { body: { to } })
    if (options.json) printJson(copy, io)
    else io.stdout.write(`${printable(copy.id, io.stdout)}\n`)
    return exitCodes.ok
  })

const remove = (ids: readonly string[], options: Options, io: ProcessIo): Promise<number> =>
  reporting('threads rm', io, async () => {
    const server = await serverOf(options, io)
    for (const id of ids) {
      await request(server, pathOf(id), { method: 'DELETE' })
      if (!options.json) io.stdout.write(`Deleted ${printable(id, io.stdout)}.\n`)
    }
    if (options.json) printJson({ deleted: ids }, io)
    return exitCodes.ok
  })
