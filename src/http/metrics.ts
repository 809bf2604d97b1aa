import { serverGroup } from './health.ts'
import type { Operation } from './operation.ts'

/** Metrics in the Prometheus text format: https://prometheus.io/docs/instrumenting/exposition_formats/ */
export const metricsOperation: Operation = {
  id: 'metrics',
  method: 'GET',
  path: '/metrics',
  access: 'operator',
  capability: null,
  group: serverGroup,
  summary: 'Get metrics in the Prometheus text format',
  answers: { 200: { mediaType: 'text/plain' } },
  refusals: [],
  handler:
    ({ metrics, core }) =>
    async (_request, reply) => {
      const text = await core.runtime.metricsText()
      return reply.code(200).header('content-type', metrics.contentType).send(text)
    },
}
