import type { TSchema } from 'typebox'
import { type RefusalCode, refusals } from '../../base/errors.ts'
import { ErrorBody } from './answers.ts'
import { isRaw, type Operation, type Raw } from './operation.ts'
import { operations } from './operations.ts'

/** Every request may be refused with these, by whose secret it takes. */
const atTheDoor: Readonly<Record<Operation['by'], readonly RefusalCode[]>> = {
  nobody: ['host_not_allowed', 'origin_not_allowed', 'fault'],
  key: [
    'host_not_allowed',
    'origin_not_allowed',
    'unauthorized',
    'permission_denied',
    'profile_gone',
    'too_many_failures',
    'fault',
  ],
  'admin token': ['host_not_allowed', 'origin_not_allowed', 'unauthorized', 'too_many_failures', 'fault'],
}

/** What a body that is JSON may be refused with. */
const withBody: readonly RefusalCode[] = ['parse_error', 'wrong_content_type', 'body_too_large']

const statusTexts: Readonly<Record<number, string>> = {
  200: 'Done.',
  201: 'Made.',
  202: 'Taken.',
  204: 'Done.',
  206: 'The part that was asked for.',
  304: 'As the client has it.',
}

/**
 * Everything that the server answers over HTTP, as OpenAPI 3.1: https://spec.openapis.org/oas/v3.1.1.html
 * @param version of the product.
 */
export function openApiDocument(version: string): object {
  const paths: Record<string, Record<string, object>> = {}
  for (const [name, operation] of Object.entries(operations)) {
    const [method = '', path = ''] = name.split(' ')
    paths[path] = { ...paths[path], [method.toLowerCase()]: toOperation(path, operation) }
  }
  return {
    openapi: '3.1.1',
    info: {
      title: 'Glovebox',
      version,
      description: 'One self-hosted endpoint where AI agents run code and reach tools, safely.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'Where this document came from.' }],
    tags: [...new Set(Object.values(operations).map(({ group }) => group))].map((name) => ({
      name,
      description: groups[name],
    })),
    paths,
    components: {
      schemas: { Error: ErrorBody },
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer', description: 'A key: sk-….' },
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key', description: 'A key; wins over Authorization.' },
        adminToken: { type: 'http', scheme: 'bearer', description: 'An admin token: gba_….' },
      },
    },
  }
}

const groups: Readonly<Record<Operation['group'], string>> = {
  Execute: 'Run code.',
  Executions: 'Runs, while they go on and after.',
  Files: 'Files of threads and volumes.',
  Threads: 'Home directories that are kept from run to run.',
  Volumes: 'Directories that are shared in an organisation.',
  Administration: 'For operators: organisations, keys, profiles, limits.',
  Server: 'About the server.',
  MCP: 'The Model Context Protocol.',
}

const security: Readonly<Record<Operation['by'], object[]>> = {
  nobody: [],
  key: [{ bearer: [] }, { apiKey: [] }],
  'admin token': [{ adminToken: [] }],
}

function toOperation(path: string, operation: Operation): object {
  const { id, summary, by, group, query = {}, body, answers } = operation
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }))
  const inQuery = Object.entries(query).map(([name, description]) => ({
    name,
    in: 'query',
    description,
    schema: { type: 'string' },
  }))
  const succeeded = Object.entries(answers).map(([status, answer]) => [status, toAnswer(Number(status), answer)])
  return {
    operationId: id,
    summary: `${summary}.`,
    tags: [group],
    security: security[by],
    ...(inPath.length + inQuery.length > 0 && { parameters: [...inPath, ...inQuery] }),
    ...(body && { requestBody: { required: true, content: toMedia(body) } }),
    responses: { ...Object.fromEntries(succeeded), ...toRefused(operation) },
  }
}

const toAnswer = (status: number, answer: TSchema | Raw | null): object => ({
  description: statusTexts[status] ?? 'Done.',
  ...(answer && { content: toMedia(answer) }),
})

const toMedia = (body: TSchema | Raw): object =>
  isRaw(body) ? { [body.mediaType]: {} } : { 'application/json': { schema: body } }

/** One answer for each status, which says every problem that has it. */
function toRefused({ by, body, refusals: own }: Operation): object {
  const asJson = body !== undefined && !isRaw(body) ? withBody : []
  const byStatus = new Map<number, string[]>()
  for (const code of new Set([...own, ...asJson, ...atTheDoor[by]])) {
    const { http, message } = refusals[code]
    byStatus.set(http, [...(byStatus.get(http) ?? []), message])
  }
  const refused = [...byStatus].map(([status, messages]) => [
    status,
    {
      description: messages.join(' '),
      content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
    },
  ])
  return Object.fromEntries(refused)
}
