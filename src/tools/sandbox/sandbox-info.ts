import Type from 'typebox'
import { tool } from '../tool.ts'
import { describeSandbox, namespaceArgument, target, textResult, toRef } from './arguments.ts'

const listMax = 50
const MiB = 1024 * 1024

const reads = {
  toolset: 'sandbox',
  capabilities: ['sandboxes.read'],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
} as const

export const sandboxList = tool({
  ...reads,
  name: 'sandbox_list',
  title: 'List sandboxes',
  describe: () => `List sandboxes with their state, at most ${listMax} at a time.`,
  input: Type.Object(
    {
      namespace: Type.Optional(Type.String({ description: 'Sandboxes of this namespace; all if it is absent.' })),
      cursor: Type.Optional(Type.String({ maxLength: 512, description: 'From an earlier result, for the next ones.' })),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, { namespace, cursor }, { core }) => {
    const page = { limit: listMax, namespace, cursor: cursor || undefined }
    const { items, nextCursor } = await core.sandboxes.list(caller, page)
    const lines = items.map(describeSandbox)
    if (lines.length === 0) lines.push('There are no sandboxes. Start one with sandbox_start.')
    if (nextCursor !== null) lines.push(`There are more sandboxes: call again with cursor "${nextCursor}".`)
    return textResult(lines.join('\n'))
  },
})

export const sandboxInspect = tool({
  ...reads,
  name: 'sandbox_inspect',
  title: 'Inspect a sandbox',
  describe: () => 'Get the state and all settings of a sandbox as JSON.',
  input: Type.Object(target, { additionalProperties: false }),
  narrow: (input) => input,
  run: async (caller, given, { core }) =>
    textResult(JSON.stringify(await core.sandboxes.get(caller, toRef(given)), null, 2)),
})

export const sandboxGetMetrics = tool({
  ...reads,
  name: 'sandbox_get_metrics',
  title: 'Get metrics of sandboxes',
  describe: () => 'Get the processor time, memory, disk, processes and uptime of one sandbox, or of all.',
  input: Type.Object(
    {
      sandbox: Type.Optional(Type.String({ description: 'Name of the sandbox; all sandboxes if it is absent.' })),
      namespace: namespaceArgument,
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, { sandbox, namespace }, { core }) => {
    const items =
      sandbox === undefined
        ? (await core.sandboxes.metricsOfAll(caller, { namespace, limit: 200 })).items
        : [await core.sandboxes.metrics(caller, { name: sandbox, namespace })]
    const lines = items.map(({ name, state, figures }) => {
      if (figures === null) return `${name}: ${state}`
      const { memoryBytes, memoryLimitBytes, diskBytes, cpuSeconds, processes, uptimeMs } = figures
      const memory = `${mebi(memoryBytes)} of ${mebi(memoryLimitBytes)} MiB memory`
      return `${name}: ${state}, ${cpuSeconds.toFixed(1)} s CPU, ${memory}, ${mebi(diskBytes)} MiB disk, ${processes} processes, up ${Math.round(uptimeMs / 1_000)} s`
    })
    return textResult(lines.join('\n') || 'There are no sandboxes.')
  },
})

const mebi = (bytes: number): string => (bytes / MiB).toFixed(bytes < 10 * MiB ? 1 : 0)
