import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { assess } from '../../core/runtime/health.ts'
import { type Runtime, recentMs } from '../../core/runtime/runtime.ts'
import { counted } from '../../observe/recent-runs.ts'
import { type RouteOrder, routeOrders } from '../../observe/routes.ts'
import { limitOf, type RuntimeTool, runtimeTool } from './runtime-tool.ts'

const serverStats = ({ metrics, facts }: Runtime) => {
  const { connections = 0, requests = 0, bufferBytes = 0 } = metrics.front?.() ?? {}
  return {
    connections: { open: connections, max: facts.connectionsMax },
    open_requests: requests,
    buffer_bytes: bufferBytes,
    last_ten_minutes: metrics.recent.answers.recent,
  }
}

const upstreamsOf = ({ metrics }: Runtime) =>
  [...metrics.recent.upstreams].map(([name, { calls, failures, failing, totalMs }]) => ({
    ...{ name, calls, failures, failing },
    average_ms: calls === 0 ? 0 : Math.round(totalMs / calls),
  }))

const toProgram = ({ upstreamId, orgId, processes, uptimeMs, skippedLines }: Runtime['programs'][number]) => ({
  ...{ upstream_id: upstreamId, org_id: orgId, processes, uptime_ms: Math.round(uptimeMs) },
  skipped_lines: skippedLines,
})

/** Tools for the HTTP server, its routes, and outgoing connections. */
export const serverTools: readonly RuntimeTool[] = [
  runtimeTool({
    name: 'undertow_get_stats',
    title: 'HTTP server',
    description: 'Open connections and requests, memory of bodies, and responses of the last ten minutes.',
    aliases: ['webserver_get_stats'],
    run: serverStats,
  }),
  runtimeTool({
    name: 'undertow_get_health',
    title: 'Health of the HTTP server',
    description: 'Issues of connections, errors and slow requests, with suggested actions.',
    aliases: ['webserver_get_health'],
    run: async (runtime) => assess('webServer', await runtime.figures()),
  }),
  runtimeTool({
    name: 'routes_get_all',
    title: 'Routes',
    description: 'Requests, errors, average and maximum duration of each route since the start.',
    input: {
      sortBy: Type.Optional(
        Type.Unsafe<RouteOrder>({ type: 'string', enum: [...routeOrders], description: 'Order; requests by default.' }),
      ),
      limit: limitOf(50),
    },
    run: ({ metrics }, { sortBy, limit = 50 }) => ({ routes: metrics.recent.routes.list(sortBy).slice(0, limit) }),
  }),
  runtimeTool({
    name: 'routes_get_route',
    title: 'One route',
    description: 'Requests, errors and durations of one route.',
    input: { route: Type.String({ maxLength: 256, description: 'Method and path, such as POST /mcp.' }) },
    run: ({ metrics }, { route }) => {
      const figures = metrics.recent.routes.get(route)
      if (figures === undefined)
        throw new Refusal('name_unknown', { what: `The route ${route}`, tool: 'routes_get_all' })
      return figures
    },
  }),
  runtimeTool({
    name: 'routes_get_summary',
    title: 'Sums of routes',
    description: 'Number of routes in use, and the busiest, the slowest and the one with most errors.',
    run: ({ metrics: { recent } }) => ({
      routes: recent.routes.list().length,
      requests: recent.requests.stats,
      busiest: recent.routes.list('requests')[0] ?? null,
      slowest: recent.routes.list('avgLatency')[0] ?? null,
      most_errors: recent.routes.list('errors').find(({ errors }) => errors > 0) ?? null,
    }),
  }),
  runtimeTool({
    name: 'routes_clear',
    title: 'Forget the figures of routes',
    description: 'Sets the figures of all routes to zero.',
    effect: 'write',
    run: ({ metrics }) => {
      metrics.recent.routes.clear()
      return { cleared: true }
    },
  }),
  runtimeTool({
    name: 'http_get_service_summary',
    title: 'Outgoing calls',
    description: 'Number and duration of the calls of upstreams and webhooks since the start.',
    run: (runtime) => ({ calls: runtime.metrics.recent.outbound.stats, upstreams: upstreamsOf(runtime).length }),
  }),
  runtimeTool({
    name: 'http_get_clients',
    title: 'Upstreams in use',
    description:
      'Calls, failures and average duration of each upstream that was called since the start, and programs that run.',
    aliases: ['http_get_soap_clients'],
    input: { limit: limitOf(100) },
    run: (runtime, { limit = 100 }) => ({
      clients: upstreamsOf(runtime).slice(0, limit),
      programs: runtime.programs.slice(0, limit).map(toProgram),
    }),
  }),
  runtimeTool({
    name: 'http_get_client_names',
    title: 'Names of upstreams in use',
    description: 'The upstreams that were called since the start.',
    run: ({ metrics }) => ({ names: [...metrics.recent.upstreams.keys()] }),
  }),
  runtimeTool({
    name: 'http_get_client_count',
    title: 'Number of upstreams in use',
    description: 'How many upstreams were called since the start.',
    run: ({ metrics }) => ({ count: metrics.recent.upstreams.size }),
  }),
  runtimeTool({
    name: 'http_get_health',
    title: 'Health of upstreams',
    description: 'Upstreams that fail, and slow outgoing calls, with suggested actions.',
    run: async (runtime) => assess('upstreams', await runtime.figures()),
  }),
  runtimeTool({
    name: 'performance_get_snapshot',
    title: 'Performance now',
    description:
      'Memory and event loop of both processes, latest runs, slots, sandboxes, requests and slow calls, in one answer.',
    run: async (runtime) => {
      const { front, runner, engine, runs, slow, answers, connections } = await runtime.figures()
      return {
        ...{ at: new Date().toISOString(), over_seconds: recentMs / 1000 },
        processes: { front, runner },
        ...{ runs, slow, responses: answers, connections },
        ...{ slots: engine?.slots ?? null, queue: engine?.queue ?? null },
        sandboxes: engine && counted((await runtime.sandboxes()).map(({ state }) => state.kind)),
        upstreams: upstreamsOf(runtime).slice(0, 50),
      }
    },
  }),
  runtimeTool({
    name: 'system_get_health',
    title: 'Health of the server',
    description:
      'Status, score from 0 to 100, and every issue of the server with its code, figures and suggested action. Start here.',
    run: (runtime) => runtime.health(),
  }),
]
