import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { Runtime } from '../../core/runtime/runtime.ts'
import { type SlowCalls, slowCallsMax } from '../../observe/slow-calls.ts'
import { limitOf, type RuntimeTool, runtimeTool } from './runtime-tool.ts'

interface Kind {
  /** Prefix of the names of its tools. */
  prefix: string
  /** Name of the tool that lists calls, without the prefix. */
  list: string
  /** Name of the tool that returns sums, without the prefix. */
  stats: string
  noun: string
  of(runtime: Runtime): SlowCalls
}

const settings = {
  enabled: Type.Optional(Type.Boolean({ description: 'Whether slow calls are kept.' })),
  threshold_ms: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 3_600_000, description: 'Duration from which a call is slow.' }),
  ),
  buffer_size: Type.Optional(
    Type.Integer({ minimum: 1, maximum: slowCallsMax, description: 'Number of slow calls that are kept.' }),
  ),
}

/** Returns a time in the form in which times are compared. @throws Refusal `invalid_argument`. */
function toTime(text: string): string {
  const time = new Date(text)
  if (!Number.isNaN(time.getTime())) return time.toISOString()
  throw new Refusal('invalid_argument', { field: 'since', problem: 'must be a time such as 2026-01-31T12:00:00Z' })
}

/** Defines the tools for one kind of slow calls. */
const toolsFor = ({ prefix, list, stats, noun, of }: Kind): RuntimeTool[] => [
  runtimeTool({
    name: `${prefix}_${list}`,
    title: `Slow ${noun}`,
    description: `The latest slow ${noun}, newest first, with their duration. Contains no parameters, bodies or headers.`,
    input: {
      limit: limitOf(50),
      since: Type.Optional(Type.String({ maxLength: 64, description: 'Only later ones; ISO 8601.' })),
    },
    run: (runtime, { limit, since }) => ({
      calls: of(runtime).latest({ limit, since: since && toTime(since) }),
      stats: of(runtime).stats,
    }),
  }),
  runtimeTool({
    name: `${prefix}_${stats}`,
    title: `Figures of ${noun}`,
    description: `Number of ${noun}, of slow and failed ones, average and maximum duration since the start.`,
    run: (runtime) => of(runtime).stats,
  }),
  runtimeTool({
    name: `${prefix}_get_config`,
    title: `What a slow call is (${noun})`,
    description: `The threshold in milliseconds from which ${noun} are slow, and how many are kept.`,
    run: (runtime) => of(runtime).settings,
  }),
  runtimeTool({
    name: `${prefix}_set_config`,
    title: `Change what a slow call is (${noun})`,
    description: `Changes the threshold and the number of ${noun} that are kept, until the next start.`,
    effect: 'write',
    input: settings,
    run: (runtime, changed) =>
      of(runtime).configure(Object.fromEntries(Object.entries(changed).filter(([, value]) => value !== undefined))),
  }),
  runtimeTool({
    name: `${prefix}_clear`,
    title: `Forget slow ${noun}`,
    description: `Forgets the slow ${noun} and the sums.`,
    effect: 'write',
    run: (runtime) => {
      of(runtime).clear()
      return { cleared: true }
    },
  }),
]

/** Tools for slow statements, requests and outgoing calls. */
export const slowCallTools: readonly RuntimeTool[] = [
  ...toolsFor({
    ...{ prefix: 'sql', list: 'get_slow_queries', stats: 'get_query_stats', noun: 'statements of the database' },
    of: ({ metrics }) => metrics.recent.queries,
  }),
  ...toolsFor({
    ...{ prefix: 'requests', list: 'get_slow_requests', stats: 'get_stats', noun: 'requests' },
    of: ({ metrics }) => metrics.recent.requests,
  }),
  ...toolsFor({
    ...{ prefix: 'slow_http', list: 'get_calls', stats: 'get_stats', noun: 'calls of upstreams and webhooks' },
    of: ({ metrics }) => metrics.recent.outbound,
  }),
]
