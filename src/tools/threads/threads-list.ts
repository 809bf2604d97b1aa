import Type from 'typebox'
import { tool } from '../tool.ts'

const threadsMax = 50

export const threadsList = tool({
  name: 'threads_list',
  title: 'List threads',
  toolset: 'files',
  capabilities: ['threads.read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  offered: ({ storage }) => storage.kind === 'threads',
  describe: () =>
    `List the threads by name, at most ${threadsMax} at a time: size, last use, and whether one is in use.`,
  input: Type.Object(
    {
      cursor: Type.Optional(Type.String({ maxLength: 512, description: 'From an earlier result, for the next ones.' })),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, { cursor }, { core }) => {
    const page = { limit: threadsMax, ...(cursor !== undefined && cursor !== '' && { cursor }) }
    const { items, nextCursor } = await core.threads.list(caller, page)
    const lines = items.map(
      ({ id, size_bytes, last_used_at, busy }) =>
        `${id}: ${size_bytes} bytes, last used ${last_used_at}${busy ? ', in use' : ''}`,
    )
    if (lines.length === 0) lines.push('There are no threads.')
    if (nextCursor !== null) lines.push(`There are more threads: call again with cursor "${nextCursor}".`)
    return { content: [{ type: 'text', text: lines.join('\n') }], isError: false }
  },
})
