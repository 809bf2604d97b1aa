import { type ClientRequest, type IncomingMessage, request as requestOf, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { type Duplex, pipeline } from 'node:stream'
import { Refusal } from '../../base/errors.ts'
import { joinSmallPieces } from '../../base/small-pieces.ts'
import { finalStatusOf, limitInformation } from '../../base/status-line.ts'
import { responseHeaders } from './headers.ts'
import type { Place } from './place.ts'

/** What is relayed between a client and a program. */
export interface Relayed {
  request: IncomingMessage
  place: Place
  orgId: string
  /** Port of the program. */
  port: number
  /** For the program. */
  headers: string[]
  connection: Duplex
}

/**
 * Sends a request to a program and its response to the client, both as they arrive. Both are parsed and written by Node, so
 * nothing that two parsers could read differently passes.
 * @param refuse called when there is no response to relay.
 */
export function relay(relayed: Relayed, response: ServerResponse, refuse: (refusal: Refusal) => void): void {
  const { request, connection } = relayed
  const upstream = open(relayed, refuse, () => response.headersSent)
  response.once('close', () => connection.destroy())
  upstream.once('response', (answer) => respond(relayed, answer, () => response, refuse))
  if (hasBody(request)) pipeline(request, upstream, () => undefined)
  else upstream.end()
}

/**
 * Sends a request for another protocol. When the program agrees, the bytes of both sides are passed on until both have ended.
 * @param head bytes of the new protocol that arrived with the request.
 * @param respondAs makes the response for a program that does not agree.
 */
export function relayUpgrade(
  relayed: Relayed,
  { socket, head, respondAs }: { socket: Socket; head: Buffer; respondAs: () => ServerResponse },
  refuse: (refusal: Refusal) => void,
): void {
  const { place, port, connection } = relayed
  let isAnswered = false
  const upstream = open(relayed, refuse, () => isAnswered)
  socket.once('close', () => connection.destroy())
  upstream.once('response', (answer) => {
    isAnswered = true
    respond(relayed, answer, respondAs, refuse)
  })
  upstream.once('upgrade', ({ rawHeaders }, inside, first) => {
    isAnswered = true
    const lines = responseHeaders(rawHeaders, place, port, true)
    let text = 'HTTP/1.1 101 Switching Protocols\r\n'
    for (let at = 0; at < lines.length; at += 2) text += `${lines[at]}: ${lines[at + 1]}\r\n`
    socket.write(`${text}\r\n`, 'latin1')
    if (first.length > 0) socket.write(first)
    if (head.length > 0) inside.write(head)
    // Each ends the other's direction alone.
    inside.pipe(socket)
    socket.pipe(inside)
    inside.on('error', () => socket.destroy())
    inside.once('close', () => socket.destroySoon())
  })
  upstream.end()
}

function open(
  { request, place, headers, connection }: Relayed,
  refuse: (refusal: Refusal) => void,
  isAnswered: () => boolean,
): ClientRequest {
  const upstream = requestOf({
    createConnection: () => connection,
    ...(request.method !== undefined && { method: request.method }),
    path: place.target.startsWith('/') ? place.target : `/${place.target}`,
    headers,
    setHost: false,
  })
  limitInformation(upstream)
  let isRefused = false
  const fail = () => {
    connection.destroy()
    if (isRefused || isAnswered()) return
    isRefused = true
    refuse(new Refusal('preview_failed'))
  }
  upstream.on('error', fail)
  // Without an error: Node ends a connection whose server changes a protocol without being asked to.
  upstream.once('close', () => isAnswered() || fail())
  return upstream
}

function respond(
  { place, port }: Relayed,
  answer: IncomingMessage,
  respondAs: () => ServerResponse,
  refuse: (refusal: Refusal) => void,
): void {
  const line = finalStatusOf(answer)
  if (line === undefined) {
    answer.destroy()
    refuse(new Refusal('preview_failed'))
    return
  }
  joinSmallPieces(answer)
  const response = respondAs()
  response.writeHead(line.status, line.reason, responseHeaders(answer.rawHeaders, place, port, false))
  response.flushHeaders()
  // A response that breaks off must not look complete.
  pipeline(answer, response, (error) => {
    if (error) response.destroy()
  })
}

/** Whether a request asks for a protocol that is relayed. HTTP/2 is not: a server may ignore it, and the body is then lost. */
export const isUpgrade = (request: IncomingMessage): boolean =>
  !hasBody(request) && !/(?:^|[\s,])h2c/i.test(request.headers.upgrade ?? '')

/** https://www.rfc-editor.org/rfc/rfc9112#section-6-4 */
const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0'
