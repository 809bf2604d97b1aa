import { Refusal } from '../../base/errors.ts'

/**
 * Returns a refusal that says who can log in to an upstream again, and how.
 * @param credentialOf ID of the key whose credential is missing; empty for the one of the organization.
 */
export const loginRequired = (upstream: string, credentialOf: string, problem: string): Refusal =>
  new Refusal('upstream_login_required', {
    ...{ upstream, problem },
    remedy:
      credentialOf === ''
        ? `An administrator logs in with: glovebox upstreams login ${upstream}`
        : `Log in with this key: POST /v1/mcp/${upstream}/login, or PUT /v1/mcp/${upstream}/credential`,
  })
