import { Refusal } from '../../base/errors.ts'
import { redactSecrets } from '../../core/upstreams/redact-secrets.ts'
import type { UpstreamTarget } from '../../core/upstreams/upstreams.ts'
import { excerpt } from '../exchange.ts'
import { toRefusal, UpstreamProblem } from '../failures.ts'

/**
 * Returns why a step of a login failed, without secrets.
 * @throws the error itself if it is a fault of this server.
 */
export function explain(error: unknown, target: UpstreamTarget): string {
  const found = known(error)
  if (found === undefined) throw error
  const { problem } = toRefusal(found, target).details
  const { clientSecret } = target.secrets.oauth ?? {}
  const text = redactSecrets(excerpt(String(problem ?? 'it did not respond in time')), target)
  return (clientSecret ? text.replaceAll(clientSecret, '[redacted]') : text).replace(/\.$/, '')
}

/** Errors of the library describe the authorization server; those of a connection have a code or a cause with one. */
function known(error: unknown): unknown {
  if (error instanceof Refusal || error instanceof UpstreamProblem) return error
  if (!(error instanceof Error)) return undefined
  const { name, cause, message } = error
  if (cause instanceof Error) return known(cause)
  if (name === 'TimeoutError') return new UpstreamProblem('it did not respond in time')
  const { code } = error as NodeJS.ErrnoException
  const isOfConnection = typeof code === 'string' && /^(?:E[A-Z_]+|UND_ERR_[A-Z_]+)$/.test(code)
  return isOfConnection || name === 'HTTPParserError' ? error : new UpstreamProblem(message)
}
