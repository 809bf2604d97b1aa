import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyServerFactory } from 'fastify'
import { joinSmallPieces } from '../base/small-pieces.ts'
import type { PreviewServer } from './previews/previews.ts'
import { isUpgrade } from './previews/relay.ts'
import type { TlsServer } from './tls.ts'

/** Longer than the idle timeout of common proxies, so that they close first and no request meets a closing connection. */
export const keepAliveTimeoutMs = 72_000
/** How long responses in progress may continue when the server closes. */
const closingMs = 10_500

/** Requests for previews never reach Fastify, which would refuse their methods and bodies. */
export const serve =
  (tls: TlsServer | undefined, previews: () => PreviewServer | undefined): FastifyServerFactory<Server> =>
  (listener) => {
    const placeOf = (request: IncomingMessage) => previews()?.placeOf(request)
    const options = {
      keepAliveTimeout: keepAliveTimeoutMs,
      // Others are answered as if they had requested no other protocol.
      shouldUpgradeCallback: (request: IncomingMessage) => isUpgrade(request) && placeOf(request) !== undefined,
    }
    const handle = (request: IncomingMessage, response: ServerResponse) => {
      // With a length, a body has one piece for each read of the socket, so the client does not decide on their size.
      if (request.headers['transfer-encoding'] !== undefined) joinSmallPieces(request)
      const place = placeOf(request)
      if (place === undefined) listener(request, response)
      else previews()?.handle(request, response, place)
    }
    // It has the interface of a server without TLS, which is the one that Fastify's types name.
    const server = tls ? (tls.create(options, handle) as unknown as Server) : createServer(options, handle)
    server.on('upgrade', (request, socket, head) => {
      const place = placeOf(request)
      if (place === undefined) socket.destroy()
      else previews()?.upgrade(request, socket as Socket, head, place)
    })
    server.requestTimeout = 0 // See `Connections`.
    return server
  }

/**
 * Ends busy connections when the server closes; Fastify ends only those that are idle when the close begins. A busy
 * one would be kept alive by its client after the response, and one whose client does not read would never end.
 */
export function endConnectionsOnClose(app: FastifyInstance): void {
  let closing = false
  app.addHook('preClose', async () => {
    closing = true
    const late = setTimeout(() => app.server.closeAllConnections(), closingMs)
    app.server.once('close', () => clearTimeout(late))
  })
  app.addHook('onResponse', ({ raw }, _reply, done) => {
    if (closing) raw.socket.destroySoon()
    done()
  })
}
