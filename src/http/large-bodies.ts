import type { FastifyInstance, FastifyRequest } from 'fastify'
import { TransferPlaces } from '../core/storage/transfer-places.ts'

/** A body of this size, in bytes, takes some milliseconds of the event loop to receive and parse. */
const largeBytes = 256 * 1024

/** Large bodies of one key that are received at the same time. Further ones wait; their bytes stay with the client. */
const perKey = 2

/** Lets the large JSON bodies of one key take turns, so that they do not fill the event loop that all keys share. */
export function receiveLargeBodiesInTurn(app: FastifyInstance): void {
  const places = new TransferPlaces(perKey)
  app.addHook('preParsing', (request, reply, _payload, done) => {
    if (!isLarge(request)) return done()
    void places.enter(ownerOf(request)).then((leave) => {
      reply.raw.once('close', leave)
      // The handler, which follows, parses the body before anything else.
      request.raw.once('end', () => setImmediate(leave))
      if (reply.raw.closed) leave()
      done()
    }, done)
  })
}

function isLarge({ headers, routeOptions }: FastifyRequest): boolean {
  if (routeOptions.config?.bodyKind === 'file') return false
  const length = headers['content-length']
  return headers['transfer-encoding'] !== undefined || (length !== undefined && Number(length) > largeBytes)
}

/** Requests without a caller come from administrators, who share one place. */
const ownerOf = ({ caller }: FastifyRequest): string => caller?.keyId ?? ''
