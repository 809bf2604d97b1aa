import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'

export interface Received {
  path: string
  headers: IncomingHttpHeaders
  raw: string
  body: Record<string, unknown>
}

/** A webhook receiver. */
export interface Receiver {
  url: string
  received: Received[]
  /** Answers the next deliveries; 204 by default. */
  answer: (received: Received, response: ServerResponse) => void
  close(): void
}

export async function openReceiver(): Promise<Receiver> {
  const receiver: Receiver = {
    url: '',
    received: [],
    answer: (_received, response) => void response.writeHead(204).end(),
    close: () => {
      server.closeAllConnections()
      server.close()
    },
  }
  const server = createServer(async (request, response) => {
    const raw = await text(request)
    const body = JSON.parse(raw) as Record<string, unknown>
    const received = { path: request.url ?? '', headers: request.headers, raw, body }
    receiver.received.push(received)
    receiver.answer(received, response)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  receiver.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return receiver
}

/** Verifies the signature like a receiver. */
export const isSigned = ({ headers, raw }: Received, secret: string): boolean =>
  createHmac('sha256', secret).update(`${headers['x-timestamp']}.${raw}`).digest('hex') === headers['x-signature']
