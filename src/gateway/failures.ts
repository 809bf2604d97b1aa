import { Refusal } from '../base/errors.ts'
import type { UpstreamTarget } from '../core/upstreams/upstreams.ts'
import { refusalIn } from '../outbound/guarded-agent.ts'

/** The upstream did not begin its response within its timeout. */
export class UpstreamTimeout extends Error {}

/** What is wrong with a response of an upstream, in words for the caller. */
export class UpstreamProblem extends Error {}

/**
 * Converts an error of a request to an upstream to a refusal without internal details.
 * @throws the error itself if it is a fault of this server.
 */
export function toRefusal(error: unknown, { name: upstream, timeoutMs }: UpstreamTarget): Refusal {
  if (error instanceof Refusal && error.code !== 'destination_refused') return error
  const destination = refusalIn(error)
  if (destination) return new Refusal('upstream_misconfigured', { upstream, problem: withoutStop(destination.message) })
  if (error instanceof UpstreamTimeout) return new Refusal('upstream_timeout', { seconds: timeoutMs / 1_000 })
  const { code, message, name } = error as NodeJS.ErrnoException
  if (name === 'HTTPParserError') {
    return new Refusal('upstream_failed', { upstream, problem: 'it does not speak HTTP' })
  }
  if (code === 'UND_ERR_BODY_TIMEOUT') {
    return new Refusal('upstream_failed', { upstream, problem: 'it stopped sending its response' })
  }
  if (code !== undefined) return new Refusal('upstream_failed', { upstream, problem: reasonOf(code) })
  if (!(error instanceof UpstreamProblem)) throw error
  return new Refusal('upstream_failed', { upstream, problem: message })
}

function reasonOf(code: string): string {
  switch (code) {
    case 'ECONNREFUSED':
      return 'it refused the connection'
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return 'its host name cannot be resolved'
    case 'UND_ERR_CONNECT_TIMEOUT':
    case 'ETIMEDOUT':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return 'it cannot be reached'
    case 'ECONNRESET':
    case 'EPIPE':
    case 'UND_ERR_SOCKET':
      return 'it closed the connection before its response was complete'
    default:
      return `the connection failed (${code})`
  }
}

const withoutStop = (sentence: string): string => sentence.replace(/\.$/, '')
