import { reporting, requestJson, serverOf } from '../api-client.ts'
import { ClientError } from '../client-error.ts'
import { type Columns, printItems, printJson } from '../output.ts'
import { exitCodes, type ProcessIo } from '../process-io.ts'
import { printable } from '../terminal.ts'
import { pathOf, type SandboxOptions, suffixOf } from './paths.ts'

export interface RewindOptions extends SandboxOptions {
  context?: string
  files?: boolean
}

interface Context {
  id: string
  language: string
  state: string
  rewindable: number
  rewind_files: boolean
}

const columns: Columns<Context> = {
  CONTEXT: ({ id }) => id,
  LANGUAGE: ({ language }) => language,
  STATE: ({ state }) => state,
  REWINDABLE: ({ rewindable, rewind_files: files }) => `${rewindable} calls${files ? ' with files' : ''}`,
}

/** Lists the interpreters of a sandbox that keep their state. */
export const listContexts = (name: string, options: SandboxOptions, io: ProcessIo): Promise<number> =>
  reporting('sandbox contexts', io, async () => {
    const path = `${pathOf(name)}/contexts${suffixOf(options)}`
    const { data } = await requestJson<{ data: Context[] }>(await serverOf(options, io), path)
    printItems(data, columns, options, io)
    return exitCodes.ok
  })

interface Rewound {
  calls: number
  not_rewound: string[]
  files: { restored: number; removed: number } | null
}

/** Undoes the last calls of a context. */
export const rewind = (
  name: string,
  calls: string | undefined,
  options: RewindOptions,
  io: ProcessIo,
): Promise<number> =>
  reporting('sandbox rewind', io, async () => {
    const count = Number(calls ?? 1)
    if (!Number.isInteger(count) || count < 1)
      throw new ClientError('the number of calls must be a whole number from 1', exitCodes.usage)
    const context = encodeURIComponent(options.context ?? 'python')
    const path = `${pathOf(name)}/contexts/${context}/rewind${suffixOf(options)}`
    const body = { calls: count, ...(options.files && { files: true }) }
    const rewound = await requestJson<Rewound>(await serverOf(options, io), path, { body })
    if (options.json) printJson(rewound, io)
    else io.stdout.write(printable(describe(rewound), io.stdout))
    return exitCodes.ok
  })

function describe({ calls, files, not_rewound: rest }: Rewound): string {
  const lines = [`Undid ${calls} ${calls === 1 ? 'call' : 'calls'}.`]
  if (files) lines.push(`Files: ${files.restored} put back, ${files.removed} removed.`)
  if (rest.length > 0) lines.push(`Not undone: ${rest.join(', ')}.`)
  return `${lines.join('\n')}\n`
}
