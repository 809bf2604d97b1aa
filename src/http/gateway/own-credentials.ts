import Type from 'typebox'
import { clientMetadata } from '../../gateway/oauth/discover.ts'
import { clientDocumentPath } from '../../gateway/oauth/logins.ts'
import { sendJson } from '../answer.ts'
import { baseUrlOf } from '../base-url.ts'
import { keyOperation, noContent, type Operation, ok } from '../operation.ts'
import { gatewayGroup as group } from './group.ts'
import { Completion, CompletionBody, Login, LoginBody, toLogin, toMethod } from './login-schemas.ts'

const path = '/v1/mcp/{vendor}/{name}' as const
const capability = 'upstreams.call'

const nameOf = ({ vendor, name }: { vendor: string; name: string }): string => `${vendor}/${name}`

/** The credentials of the key of a request, for upstreams that accept such. */
export const ownCredentialOperations: readonly Operation[] = [
  keyOperation({
    ...{ id: 'setOwnCredential', method: 'PUT', path: `${path}/credential`, capability, group },
    summary: 'Set the credential of this key for an upstream MCP server',
    body: Type.Object({ values: Type.Array(Type.String(), { description: 'Used in turn.' }) }),
    answers: { 204: null },
    refusals: ['upstream_unknown'],
    handle: async ({ core, caller, params, body }) => {
      await core.ownCredentials.set(caller, nameOf(params), body.values)
      return noContent
    },
  }),
  keyOperation({
    ...{ id: 'removeOwnCredential', method: 'DELETE', path: `${path}/credential`, capability, group },
    summary: 'Remove the credential of this key for an upstream MCP server',
    answers: { 204: null },
    refusals: ['invalid_argument', 'upstream_unknown'],
    handle: async ({ core, caller, params }) => {
      await core.ownCredentials.remove(caller, nameOf(params))
      return noContent
    },
  }),
  keyOperation({
    ...{ id: 'beginOwnLogin', method: 'POST', path: `${path}/login`, capability, group },
    summary: 'Begin a login of this key to an upstream MCP server',
    body: LoginBody,
    answers: { 200: Login },
    refusals: ['upstream_unknown', 'upstream_login_failed'],
    handle: async ({ core, caller, params, body }) =>
      ok(toLogin(await core.ownCredentials.login(caller, nameOf(params), toMethod(body)))),
  }),
  keyOperation({
    ...{ id: 'completeOwnLogin', method: 'POST', path: `${path}/login/complete`, capability, group },
    summary: 'Complete a login of this key to an upstream MCP server',
    body: CompletionBody,
    answers: { 200: Completion },
    refusals: ['upstream_unknown', 'upstream_login_failed'],
    handle: async ({ core, caller, params, body }) =>
      ok({ complete: await core.ownCredentials.complete(caller, nameOf(params), body.redirected_to) }),
  }),
  {
    id: 'getOAuthClient',
    method: 'GET',
    path: clientDocumentPath,
    access: 'open',
    capability: null,
    group,
    summary: 'Describe this server as an OAuth client, for the authorization servers of upstream MCP servers',
    answers: { 200: Type.Object({ client_id: Type.String(), redirect_uris: Type.Array(Type.String()) }) },
    refusals: [],
    handler: (server) => async (request, reply) => {
      const base = baseUrlOf(request, server)
      // Authorization servers accept any port of these addresses: https://www.rfc-editor.org/rfc/rfc8252#section-7.3
      const metadata = clientMetadata(['http://127.0.0.1/callback', 'http://localhost/callback'], true)
      return sendJson(
        reply,
        200,
        JSON.stringify({ client_id: base + clientDocumentPath, client_uri: base, ...metadata }),
      )
    },
  },
]
