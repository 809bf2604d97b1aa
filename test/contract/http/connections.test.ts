import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it } from 'vitest'
import { Connections } from '../../../src/http/connections.ts'
import { RawConnection, rawRequest } from '../../support/raw-http.ts'

/** Sends a request whose body never arrives to a server that answers with `answer`. @returns what the server sends. */
async function sentTo(answer: (response: ServerResponse) => void): Promise<string> {
  const server = createServer({ requestTimeout: 0 }, (request, response) => {
    connections.begin(request, response, false)
    answer(response)
  })
  const connections = new Connections(server, { max: 100, requestTimeoutMs: 50 }, 20)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const client = new RawConnection((server.address() as AddressInfo).port)
  await client.write(rawRequest('POST', '/', { host: 'x', 'content-length': '10', connection: 'keep-alive' }))
  await client.closed()
  connections.stop()
  server.close()
  return client.until('\0')
}

it('answers 408 when the body of a request does not arrive in time', async () => {
  expect(await sentTo(() => {})).toMatch(/^HTTP\/1\.1 408 /)
})

it('closes a connection without writing 408 into a response that has begun', async () => {
  const received = await sentTo((response) => response.write('half of'))
  expect(received).toMatch(/^HTTP\/1\.1 200 [\s\S]*half of/)
  expect(received).not.toContain('408')
})
