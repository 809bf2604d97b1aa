import Type from 'typebox'
import { portAccesses } from '../../../base/sandbox.ts'
import { previewUrls } from '../../../core/sandboxes/ports/address.ts'
import { type PublishedPort, portLifeMaxSeconds } from '../../../core/sandboxes/ports/ports.ts'
import { baseUrlOf } from '../../base-url.ts'
import { created, type KeyCall, keyOperation, noContent, type Operation, ok } from '../../operation.ts'
import { named, oneOf, Time } from '../../schemas.ts'
import { namespaceParameter, refOf, sandboxGroup, sandboxRefusals } from './schemas.ts'

const path = '/v1/sandboxes/{name}/ports'

const PublishBody = named(
  'PublishPortRequest',
  Type.Object(
    {
      port: Type.Integer({
        minimum: 1,
        maximum: 65_535,
        description: 'On which a server in the sandbox listens, on 127.0.0.1, ::1 or all addresses.',
      }),
      access: Type.Optional(
        oneOf(portAccesses, {
          description: 'key (default): keys of the organization and signed links. public: all who know the address.',
        }),
      ),
      expires_in: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: portLifeMaxSeconds,
          description: 'Seconds from now; a day by default.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
)

const Port = named(
  'PublishedPort',
  Type.Object({
    port: Type.Integer(),
    access: oneOf(portAccesses),
    url: Type.String({ description: 'Its address. With access key, requests need a key.' }),
    open_url: Type.String({ description: 'For browsers without a key; valid for at most 12 hours.' }),
    created_at: Time,
    expires_at: Time,
  }),
)

function portOnTheWire(
  { port, access, createdAt, expiresAt, ...address }: PublishedPort,
  { request, server }: Pick<KeyCall<string, undefined>, 'request' | 'server'>,
) {
  const { url, openUrl } = previewUrls({ port, ...address }, baseUrlOf(request, server))
  return { port, access, url, open_url: openUrl, created_at: createdAt, expires_at: expiresAt }
}

export const portOperations: readonly Operation[] = [
  keyOperation({
    id: 'publishSandboxPort',
    method: 'POST',
    path,
    capability: 'sandboxes.write',
    group: sandboxGroup,
    summary: 'Publish a port of a sandbox at a preview address, or change who may use it and until when',
    query: namespaceParameter,
    body: PublishBody,
    answers: { 201: Port },
    refusals: [...sandboxRefusals, 'ports_full'],
    handle: async ({ core, caller, params, query, body: { port, access, expires_in: expiresIn }, ...call }) => {
      const published = await core.sandboxPorts.publish(caller, refOf(params, query), { port, access, expiresIn })
      return created(portOnTheWire(published, call))
    },
  }),
  keyOperation({
    id: 'listSandboxPorts',
    method: 'GET',
    path,
    capability: 'sandboxes.read',
    group: sandboxGroup,
    summary: 'List the published ports of a sandbox with their addresses',
    query: namespaceParameter,
    answers: { 200: Type.Object({ data: Type.Array(Port) }) },
    refusals: sandboxRefusals,
    handle: async ({ core, caller, params, query, ...call }) => {
      const ports = await core.sandboxPorts.list(caller, refOf(params, query))
      return ok({ data: ports.map((port) => portOnTheWire(port, call)) })
    },
  }),
  keyOperation({
    id: 'withdrawSandboxPort',
    method: 'DELETE',
    path: `${path}/{port}`,
    capability: 'sandboxes.write',
    group: sandboxGroup,
    summary: 'Withdraw a published port: its address and its open connections end',
    query: namespaceParameter,
    answers: { 204: null },
    refusals: [...sandboxRefusals, 'port_unpublished'],
    handle: async ({ core, caller, params, query }) => {
      await core.sandboxPorts.withdraw(caller, refOf(params, query), toPort(params.port))
      return noContent
    },
  }),
]

/** Text that is no port names none that is published. */
const toPort = (text: string): number => (/^\d{1,5}$/.test(text) ? Number(text) : 0)
