import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { type Duplex, pipeline, type Writable } from 'node:stream'
import { NetworkRefused, type Target } from './decision.ts'
import { headOf, passedOn, statusOf } from './http-messages.ts'
import type { EgressJail } from './jail.ts'
import { pump } from './pump.ts'
import { maskedHead, maskOf } from './secrets/masked-answer.ts'
import { Finder, type Replacement } from './secrets/masking.ts'

type Count = (bytes: number) => number

/** Passes on an answer of a server that receives secrets, without them. @throws NetworkRefused when it cannot be read. */
export function passOnMasked(
  answer: IncomingMessage,
  response: ServerResponse,
  echoes: readonly Replacement[],
  isHead: boolean,
  count: Count,
): void {
  const { status, reason } = statusOf(answer)
  const hasBody = !isHead && status !== 204 && status !== 304
  const stages = readable(answer, hasBody ? echoes : [])
  const { statusMessage, headers } = maskedHead(reason, passedOn(answer.rawHeaders), echoes, hasBody)
  response.writeHead(status, statusMessage, headers)
  response.flushHeaders()
  sendBody(answer, stages, response, count)
}

/** The same for the answer to a request for another protocol that the server does not speak. The connection ends with it. */
export function refuseUpgradeMasked(
  answer: IncomingMessage,
  socket: Socket,
  echoes: readonly Replacement[],
  count: Count,
): void {
  const { status, reason } = statusOf(answer)
  const stages = readable(answer, echoes)
  const { statusMessage, headers } = maskedHead(reason, passedOn(answer.rawHeaders), echoes, true)
  const line = `HTTP/1.1 ${status} ${statusMessage}`
  const kept = headers.filter((_, i) => headers[i - (i % 2)]!.toLowerCase() !== 'transfer-encoding')
  socket.write(headOf(line, [...kept, 'Connection', 'close']))
  sendBody(answer, stages, socket, count)
}

function readable(answer: IncomingMessage, echoes: readonly Replacement[]) {
  const stages = maskOf(answer, echoes)
  if (stages !== undefined) return stages
  answer.destroy()
  throw new NetworkRefused(
    'unreachable',
    'the answer of a server that receives a secret has an encoding that cannot be read',
  )
}

function sendBody(answer: IncomingMessage, stages: Duplex[], to: Writable, count: Count): void {
  const [first, ...others] = stages as [Duplex, ...Duplex[]]
  pump(answer, first, count)
  answer.on('error', () => to.destroy())
  pipeline([first, ...others, to], (error) => {
    if (error) answer.destroy()
  })
}

/**
 * Joins a program and a server that have changed to another protocol, whose messages are not changed: a secret in what the
 * server sends ends the connection.
 */
export function joinMasked(
  jail: EgressJail,
  inside: Socket,
  outside: Socket,
  target: Target,
  echoes: readonly Replacement[],
): void {
  const use = jail.useOf(target)
  const finder = new Finder(echoes.map(({ from }) => from))
  inside.once('close', () => outside.destroy())
  outside.once('close', () => inside.destroySoon())
  outside.on('error', () => outside.destroy())
  pump(outside, inside, (bytes, piece) => {
    if (finder.find(piece)) {
      const refused = jail.secretRefusal(target, 'in what a server sends')
      jail.refuse(target, refused)
      throw refused
    }
    return jail.count(use, bytes, false)
  })
  pump(inside, outside, (bytes) => jail.count(use, bytes, true))
}
