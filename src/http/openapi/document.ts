import type { TSchema } from 'typebox'
import { type RefusalCode, refusals } from '../../base/errors.ts'
import { type Access, isRaw, type Operation, type Raw } from '../operation.ts'
import { ErrorBody } from '../schemas.ts'

const openRefusals: readonly RefusalCode[] = ['host_not_allowed', 'origin_not_allowed', 'fault']
const tokenRefusals: readonly RefusalCode[] = [...openRefusals, 'key_missing', 'unauthorized', 'too_many_failures']

/** What every request can be refused with, by the credential that it requires. */
const accessRefusals: Readonly<Record<Access, readonly RefusalCode[]>> = {
  open: openRefusals,
  key: [...tokenRefusals, 'permission_denied', 'profile_gone'],
  'admin token': tokenRefusals,
  operator: tokenRefusals,
}

/** What a JSON body can be refused with. */
const bodyRefusals: readonly RefusalCode[] = ['parse_error', 'wrong_content_type', 'body_too_large']

const statusTexts: Readonly<Record<number, string>> = {
  200: 'Success.',
  201: 'Created.',
  202: 'Accepted.',
  204: 'Success, without a body.',
  206: 'The requested range.',
  304: 'Not modified.',
}

/**
 * Describes operations as OpenAPI 3.1: https://spec.openapis.org/oas/v3.1.1.html
 * @param version of the product.
 */
export function openApiDocument(version: string, operations: readonly Operation[]): object {
  const paths: Record<string, Record<string, object>> = {}
  for (const operation of operations) {
    const { method, path } = operation
    paths[path] = { ...paths[path], [method.toLowerCase()]: toOperation(operation) }
  }
  return {
    openapi: '3.1.1',
    info: {
      title: 'Glovebox',
      version,
      description: 'One self-hosted endpoint where AI agents run code and reach tools, safely.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'The server that this document came from.' }],
    tags: [...new Map(operations.map(({ group }) => [group.name, group])).values()],
    paths,
    components: {
      schemas: { Error: ErrorBody },
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer', description: 'A key: sk-….' },
        apiKey: {
          type: 'apiKey',
          in: 'header',
          name: 'x-api-key',
          description: 'A key. Takes precedence over Authorization.',
        },
        adminToken: { type: 'http', scheme: 'bearer', description: 'An admin token: gba_….' },
      },
    },
  }
}

const adminToken = [{ adminToken: [] }]
const security: Readonly<Record<Access, object[]>> = {
  open: [],
  key: [{ bearer: [] }, { apiKey: [] }],
  'admin token': adminToken,
  operator: adminToken,
}

function toOperation(operation: Operation): object {
  const { id, path, summary, access, group, query = {}, body, answers } = operation
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
  const successes = Object.entries(answers).map(([status, answer]) => [status, toAnswer(Number(status), answer)])
  return {
    operationId: id,
    summary: `${summary}.`,
    tags: [group.name],
    security: security[access],
    ...(inPath.length + inQuery.length > 0 && { parameters: [...inPath, ...inQuery] }),
    ...(body && { requestBody: { required: true, content: toMedia(body) } }),
    responses: { ...Object.fromEntries(successes), ...toRefused(operation) },
  }
}

const toAnswer = (status: number, answer: TSchema | Raw | null): object => ({
  description: statusTexts[status] ?? 'Success.',
  ...(answer && { content: toMedia(answer) }),
})

const toMedia = (body: TSchema | Raw): object =>
  isRaw(body) ? { [body.mediaType]: {} } : { 'application/json': { schema: body } }

/** Returns one response per error status, with the messages of all its refusals. */
function toRefused({ access, body, refusals: own }: Operation): object {
  const asJson = body !== undefined && !isRaw(body) ? bodyRefusals : []
  const byStatus = new Map<number, string[]>()
  for (const code of new Set([...own, ...asJson, ...accessRefusals[access]])) {
    const { http, message } = refusals[code]
    byStatus.set(http, [...(byStatus.get(http) ?? []), message])
  }
  const responses = [...byStatus].map(([status, messages]) => [
    status,
    {
      description: messages.join(' '),
      content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
    },
  ])
  return Object.fromEntries(responses)
}
