import Type, { type Static } from 'typebox'
import type { LoginInstructions, LoginMethod } from '../../core/upstreams/logins.ts'
import { oneOf, orNull } from '../schemas.ts'

/** Begins a login, for administrators and for keys. */
export const LoginBody = Type.Object(
  {
    method: Type.Optional(
      oneOf(['browser', 'device'], { description: 'device needs no browser on this machine; browser by default.' }),
    ),
    redirect_uri: Type.Optional(
      Type.String({ description: 'For browser: http://127.0.0.1:PORT/callback on the machine of the user.' }),
    ),
  },
  { additionalProperties: false },
)

export const Login = Type.Object({
  url: Type.String({ description: 'Link to open.' }),
  user_code: orNull(Type.String(), { description: 'Code to enter there; null if the link contains it.' }),
  expires_at: Type.String(),
  poll_interval_ms: orNull(Type.Integer(), { description: 'Time between two requests to complete a login by device.' }),
})

export const CompletionBody = Type.Object(
  {
    redirected_to: Type.Optional(
      Type.String({ description: 'For browser: the address that the browser was redirected to, with its query.' }),
    ),
  },
  { additionalProperties: false },
)

export const Completion = Type.Object({
  complete: Type.Boolean({ description: 'false while the user has not completed the login by device.' }),
})

/** Core checks the address, after the rights of the caller. */
export const toMethod = ({
  method = 'browser',
  redirect_uri: redirectUri = '',
}: Static<typeof LoginBody>): LoginMethod =>
  method === 'device' ? { kind: 'device' } : { kind: 'browser', redirectUri }

export const toLogin = ({ url, userCode, expiresAtMs, pollIntervalMs }: LoginInstructions) => ({
  ...{ url, user_code: userCode, expires_at: new Date(expiresAtMs).toISOString() },
  poll_interval_ms: pollIntervalMs,
})
