import Type from 'typebox'
import { toFinding } from '../files/files-download.ts'
import { tool } from '../tool.ts'

export const threadsFork = tool({
  name: 'threads_fork',
  title: 'Copy a thread',
  toolset: 'files',
  capabilities: ['threads.write'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
  offered: ({ storage }) => storage.kind === 'threads',
  describe: () => 'Copy a thread with all its files to a new thread, for example to try something without changing it.',
  input: Type.Object(
    {
      thread_id: Type.String({ description: 'The thread to copy.' }),
      to: Type.String({ description: 'The thread_id of the copy, which must not exist yet.' }),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, { thread_id, to }, { core }) => {
    try {
      const { id, size_bytes } = await core.threads.fork(caller, thread_id, to)
      const text = `Copied ${thread_id} to ${id}, ${size_bytes} bytes. Use it as thread_id.`
      return { content: [{ type: 'text', text }], isError: false }
    } catch (error) {
      return toFinding(error)
    }
  },
})
