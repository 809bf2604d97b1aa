import { ClientCapabilities } from '../tools/request-context.ts'
import type { ToolContext } from '../tools/tool.ts'
import type { McpContext } from './handle.ts'

/** The capabilities of a client that declared none. */
export const noCapabilities = new ClientCapabilities({})

/**
 * Returns the context of a call whose client accepts neither input requests nor notifications. A protocol that can
 * do more overrides what it has.
 * @param signal aborts when the call is cancelled.
 */
export const basicToolContext = (
  {
    core,
    offer,
    baseUrl,
    connectionId,
    results,
  }: Pick<McpContext, 'core' | 'offer' | 'baseUrl' | 'connectionId' | 'results'>,
  signal: AbortSignal,
): ToolContext => ({
  core,
  baseUrl,
  ...(connectionId !== undefined && { connectionId }),
  offers: offer.has,
  linksImages: results.structuredResults,
  signal,
  detached: true,
  client: noCapabilities,
  ask: async (requests) => {
    noCapabilities.require(requests)
    return {}
  },
  log: async () => {},
})
