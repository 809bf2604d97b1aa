import Type, { type TSchema } from 'typebox'
import { type RefusalCode, refusals } from '../../base/errors.ts'
import { executionStatuses } from '../../base/execution-status.ts'
import { languages } from '../../base/run.ts'
import { type Access, isRaw, type Operation, type Raw } from '../operation.ts'
import { ErrorBody } from '../schemas.ts'
import { NamedSchemas } from './named-schemas.ts'

const openRefusals: readonly RefusalCode[] = ['host_not_allowed', 'origin_not_allowed', 'fault']
const keyRefusals: readonly RefusalCode[] = [...openRefusals, 'key_missing', 'unauthorized', 'too_many_failures']
const tokenRefusals: readonly RefusalCode[] = [...openRefusals, 'token_missing', 'token_invalid', 'too_many_failures']

/** What every request can be refused with, by the credential that it requires. */
const accessRefusals: Readonly<Record<Access, readonly RefusalCode[]>> = {
  open: openRefusals,
  key: [...keyRefusals, 'permission_denied', 'profile_gone'],
  'key or admin token': [...keyRefusals, 'token_invalid', 'permission_denied', 'profile_gone', 'address_not_allowed'],
  'admin token': tokenRefusals,
  runtime: tokenRefusals,
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
  const schemas = new NamedSchemas()
  schemas.refer(ErrorBody)
  const paths: Record<string, Record<string, object>> = {}
  for (const operation of operations) {
    const { method, path } = operation
    paths[path] = { ...paths[path], [method.toLowerCase()]: toOperation(operation, schemas) }
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
      schemas: schemas.all,
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
  'key or admin token': [{ bearer: [] }, { apiKey: [] }, { adminToken: [] }],
  'admin token': adminToken,
  runtime: adminToken,
  operator: adminToken,
}

function toOperation(operation: Operation, schemas: NamedSchemas): object {
  const { id, method, path, summary, access, group, query = {}, answers, lines, example } = operation
  const body = operation.body ?? (method === 'POST' ? emptyBody : undefined)
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: path.startsWith('/v1/threads/') ? threadId : { type: 'string' },
  }))
  const inQuery = Object.entries(query).map(([name, description]) => ({
    name,
    in: 'query',
    description,
    schema: querySchemas[name] ?? { type: 'string' },
  }))
  const successes = Object.entries(answers).map(([status, answer]) => {
    const content = {
      ...(answer &&
        toMedia(answer, schemas, status.startsWith('20') && status !== '202' ? example?.answer : undefined)),
      ...(status === '200' && lines && toLines(lines, schemas)),
    }
    const description = statusTexts[Number(status)] ?? 'Success.'
    return [status, { description, ...(answer && { content }) }]
  })
  return {
    operationId: id,
    summary: `${summary}.`,
    tags: [group.name],
    security: security[access],
    ...(inPath.length + inQuery.length > 0 && { parameters: [...inPath, ...inQuery] }),
    ...(body && {
      requestBody: {
        required: true,
        content: toMedia(access.startsWith('key') ? lenient(body) : body, schemas, example?.body),
      },
    }),
    responses: { ...Object.fromEntries(successes), ...toRefused(operation) },
  }
}

const toMedia = (body: TSchema | Raw, schemas: NamedSchemas, example?: object): object => {
  if (!isRaw(body)) return { 'application/json': { schema: schemas.refer(body), ...(example && { example }) } }
  const schema = rawSchemas[body.mediaType]
  return { [body.mediaType]: schema ? { schema } : {} }
}

/** A POST without a body still needs the content type, which generated clients send with a body only. */
const emptyBody = Type.Object({}, { description: 'No field is used.' })

/** Operations for keys ignore unknown fields of a body, with a warning in X-Glovebox-Warning. */
const lenient = (body: TSchema | Raw): TSchema | Raw => {
  if (isRaw(body)) return body
  const { additionalProperties: _, ...schema } = body as TSchema & { additionalProperties?: unknown }
  return schema as TSchema
}

/** As `checkThreadId` accepts it. */
const threadId = { type: 'string', pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$' }

/** OpenAPI 3.1 has no field for the items of a sequence, so the schema is that of one line. */
const toLines = (line: TSchema, schemas: NamedSchemas): object => ({
  'application/x-ndjson': { schema: schemas.refer(line) },
})

/** https://spec.openapis.org/oas/v3.1.1.html#considerations-for-file-uploads */
const rawSchemas: Readonly<Record<string, object>> = {
  'application/octet-stream': { type: 'string', format: 'binary' },
  'text/plain': { type: 'string' },
  'text/event-stream': { type: 'string' },
  'application/x-ndjson': { type: 'object', description: 'One line.' },
}

/** Query parameters that are not any text, by name. */
const querySchemas: Readonly<Record<string, object>> = {
  cursor: { type: 'string', pattern: '^[A-Za-z0-9_-]*$' },
  limit: { type: 'integer', minimum: 1, maximum: 200 },
  after: { type: 'integer', minimum: 0 },
  encoding: { type: 'string', enum: ['text', 'base64'] },
  status: { type: 'string', enum: executionStatuses },
  language: { type: 'string', enum: languages },
  session: { type: 'boolean' },
  created_after: { type: 'string', format: 'date-time' },
  created_before: { type: 'string', format: 'date-time' },
}

/** Returns one response per error status, with the messages of all its refusals. */
function toRefused({ access, method, body, refusals: own, errorBody }: Operation): object {
  const content = errorBody ? {} : { schema: { $ref: '#/components/schemas/Error' } }
  const asJson = method === 'POST' || (body !== undefined && !isRaw(body)) ? bodyRefusals : []
  const byStatus = new Map<number, string[]>()
  for (const code of new Set([...own, ...asJson, ...accessRefusals[access]])) {
    const { http, message } = refusals[code]
    byStatus.set(http, [...(byStatus.get(http) ?? []), message])
  }
  const responses = [...byStatus].map(([status, messages]) => [
    status,
    {
      description: messages.join(' '),
      content: { 'application/json': content },
    },
  ])
  return Object.fromEntries(responses)
}
