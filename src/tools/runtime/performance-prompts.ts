import type { Diagnosis } from './prompts.ts'

const limit = { name: 'limit', description: 'How many calls to read.', byDefault: '50' }

const findings = 'Report the findings, most severe first: what is wrong, the figures that show it, and what to do.'

/** Prompts about what is slow. */
export const performancePrompts: readonly Diagnosis[] = [
  {
    name: 'datasource_health_report',
    title: 'Is the database healthy?',
    description: 'Examines the database.',
    task: 'Report on the database.',
    steps: [
      { tool: 'datasource_get_health', lookFor: 'Note the issues.' },
      { tool: 'datasource_get_all', lookFor: 'Note sizes; a large log means that something holds it open.' },
      { tool: 'datasource_test', with: { dsn: 'metadata' }, lookFor: 'More than a few milliseconds is slow.' },
      { tool: 'sql_get_query_stats', lookFor: 'Note the average and the maximum.' },
    ],
    report: findings,
  },
  {
    name: 'slow_sql_diagnosis',
    title: 'Which statements are slow?',
    description: 'Examines slow statements.',
    arguments: [limit],
    task: 'Find out why statements of the database are slow.',
    steps: [
      { tool: 'sql_get_slow_queries', with: { limit: '{limit}' }, lookFor: 'Group by statement.' },
      { tool: 'sql_get_query_stats', lookFor: 'Compare slow with total.' },
      { tool: 'datasource_get_all', lookFor: 'Note the size of the database and its log.' },
      { tool: 'node_get_disk_usage', lookFor: 'A full disk is slow.' },
    ],
    report: findings,
  },
  {
    name: 'slow_http_diagnosis',
    title: 'Which outgoing calls are slow?',
    description: 'Examines slow calls of upstreams and webhooks.',
    arguments: [limit],
    task: 'Find out which upstreams and webhook receivers are slow.',
    steps: [
      { tool: 'slow_http_get_calls', with: { limit: '{limit}' }, lookFor: 'Group by what was called.' },
      { tool: 'http_get_clients', lookFor: 'Compare the averages.' },
    ],
    report: findings,
  },
  {
    name: 'web_server_diagnostics',
    title: 'Does the HTTP server work?',
    description: 'Examines connections, requests and errors.',
    task: 'Examine the HTTP server.',
    steps: [
      { tool: 'undertow_get_health', lookFor: 'Note the issues.' },
      { tool: 'undertow_get_stats', lookFor: 'Compare open connections with the limit.' },
      { tool: 'routes_get_all', with: { sortBy: 'errors', limit: 10 }, lookFor: 'Note routes with errors.' },
    ],
    report: findings,
  },
  {
    name: 'slow_request_analysis',
    title: 'Which requests are slow?',
    description: 'Examines slow requests.',
    arguments: [limit],
    task: 'Find out which requests are slow, and why.',
    steps: [
      { tool: 'requests_get_slow_requests', with: { limit: '{limit}' }, lookFor: 'Group by route.' },
      { tool: 'requests_get_stats', lookFor: 'Compare slow with total.' },
      { tool: 'app_get_summary', lookFor: 'Requests that run code take as long as the code.' },
    ],
    report: findings,
  },
  {
    name: 'route_performance_analysis',
    title: 'How fast are the routes?',
    description: 'Compares the routes.',
    arguments: [
      { name: 'sortBy', description: 'requests, errors, avgLatency or maxLatency.', byDefault: 'avgLatency' },
      { name: 'limit', description: 'How many routes.', byDefault: '20' },
    ],
    task: 'Compare the routes by {sortBy}.',
    steps: [
      { tool: 'routes_get_all', with: { sortBy: '{sortBy}', limit: '{limit}' }, lookFor: 'Note outliers.' },
      { tool: 'routes_get_summary', lookFor: 'Note the busiest route.' },
    ],
    report: findings,
  },
]
