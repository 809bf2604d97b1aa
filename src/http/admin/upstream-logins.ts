import Type from 'typebox'
import {
  completeUpstreamLogin,
  listUpstreamCredentials,
  loginToUpstream,
  removeUpstreamCredential,
} from '../../core/admin/upstream-logins.ts'
import { Completion, CompletionBody, Login, LoginBody, toLogin, toMethod } from '../gateway/login-schemas.ts'
import { adminOperation, noContent, type Operation, ok } from '../operation.ts'
import { oneOf, orNull } from '../schemas.ts'
import { adminGroup as group } from './orgs.ts'
import { toRef, upstreamPath } from './upstreams.ts'

const Credential = Type.Object({
  key_id: orNull(Type.String(), { description: 'null if all keys of the organization share it.' }),
  kind: oneOf(['values', 'oauth']),
  issuer: orNull(Type.String()),
  scope: orNull(Type.String()),
  expires_at: orNull(Type.String(), { description: 'Of the access token.' }),
  renews: Type.Boolean({ description: 'Whether the access token is renewed automatically.' }),
  problem: orNull(Type.String(), { description: 'Why a new login is required.' }),
  updated_at: Type.String(),
})

/** In a path, the credential of the organization. */
const shared = 'shared'

export const upstreamLoginOperations: readonly Operation[] = [
  adminOperation({
    id: 'loginToUpstream',
    method: 'POST',
    path: `${upstreamPath}/login`,
    group,
    summary: 'Begin a login to an upstream MCP server, whose tokens all keys of the organization use',
    body: LoginBody,
    answers: { 200: Login },
    refusals: ['upstream_login_failed'],
    handle: async ({ context, admin, params, body }) =>
      ok(toLogin(await loginToUpstream(context, admin, toRef(params), toMethod(body)))),
  }),
  adminOperation({
    id: 'completeUpstreamLogin',
    method: 'POST',
    path: `${upstreamPath}/login/complete`,
    group,
    summary: 'Complete a login to an upstream MCP server',
    body: CompletionBody,
    answers: { 200: Completion },
    refusals: ['upstream_login_failed'],
    handle: async ({ context, admin, params, body }) =>
      ok({ complete: await completeUpstreamLogin(context, admin, toRef(params), body.redirected_to) }),
  }),
  adminOperation({
    id: 'listUpstreamCredentials',
    method: 'GET',
    path: `${upstreamPath}/credentials`,
    group,
    summary: 'List the logins and the credentials of keys for an upstream MCP server, without secrets',
    answers: { 200: Type.Object({ data: Type.Array(Credential) }) },
    refusals: [],
    handle: async ({ context, admin, params }) =>
      ok({ data: await listUpstreamCredentials(context, admin, toRef(params)) }),
  }),
  adminOperation({
    id: 'removeUpstreamCredential',
    method: 'DELETE',
    path: `${upstreamPath}/credentials/{key}`,
    group,
    summary: 'Remove the login of the organization (shared), or the credential of a key, for an upstream MCP server',
    answers: { 204: null },
    refusals: [],
    handle: async ({ context, admin, params }) => {
      await removeUpstreamCredential(context, admin, toRef(params), params.key === shared ? null : params.key)
      return noContent
    },
  }),
]
