import Type from 'typebox'
import { sendJson } from './answer.ts'
import type { Group, Operation } from './operation.ts'
import { named } from './schemas.ts'

export const serverGroup: Group = { name: 'Server', description: 'State and description of the server.' }

const Health = named('Health', Type.Object({ status: Type.String(), reason: Type.Optional(Type.String()) }))

const health = {
  method: 'GET',
  access: 'open',
  capability: null,
  group: serverGroup,
  answers: { 200: Health },
} as const

export const healthOperations: readonly Operation[] = [
  {
    ...health,
    id: 'alive',
    path: '/healthz',
    summary: 'Liveness probe: the process answers',
    refusals: [],
    handler: () => async (_request, reply) => sendJson(reply, 200, '{"status":"alive"}'),
  },
  {
    ...health,
    id: 'ready',
    path: '/readyz',
    summary: 'Readiness probe: 200 while runs can start, otherwise 503 with the reason',
    refusals: ['unavailable'],
    handler:
      ({ core }) =>
      async (_request, reply) => {
        const { readiness } = core
        if (readiness.ready) return sendJson(reply, 200, '{"status":"ready"}')
        return sendJson(reply, 503, JSON.stringify({ status: 'not_ready', reason: readiness.reason }))
      },
  },
]
