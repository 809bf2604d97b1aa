import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { post } from '../support/calls.ts'
import { freePort, type Glovebox, Place } from '../support/glovebox.ts'
import { openReceiver, type Receiver } from '../support/receiver.ts'

const place = new Place()
let server: Glovebox
let receiver: Receiver
beforeAll(async () => {
  receiver = await openReceiver()
  server = await place.start('--outbound-allow', '127.0.0.1', '--port', `${await freePort()}`)
}, 60_000)
afterEach(() => {
  receiver.received.length = 0
  receiver.answer = (_received, response) => void response.writeHead(204).end()
})
afterAll(async () => {
  receiver.close()
  await place.remove()
})

const patient = { timeout: 60_000, interval: 100 }
const later = (code: string) =>
  post<{ trace_id: string }>(
    `${server.url}/v1/sandbox/execute`,
    { code, language: 'bash', webhook_url: receiver.url },
    { prefer: 'respond-async' },
  )

/** Kills the front with SIGKILL, and waits until another serves. */
async function killFront(): Promise<void> {
  const pid = server.frontPid
  process.kill(pid, 'SIGKILL')
  await vi.waitFor(() => expect(server.frontPid).not.toBe(pid), patient)
  await server.ready()
}

describe('a webhook delivery', () => {
  it('succeeds although the front was killed while the run executed', async () => {
    const { status, body } = await later('echo before; sleep 3; echo after')
    expect(status).toBe(202)
    await killFront()
    await vi.waitFor(() => expect(receiver.received.length).toBeGreaterThan(0), patient)
    expect(receiver.received[0]?.body).toMatchObject({
      trace_id: body.trace_id,
      status: 'success',
      stdout: 'before\nafter\n',
    })
  }, 120_000)

  it('is repeated when the front was killed during delivery', async () => {
    let tries = 0
    receiver.answer = (_received, response) => {
      tries += 1
      if (tries > 1) response.writeHead(200).end()
    }
    const { body } = await later('echo told')
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), patient)
    await killFront()
    await vi.waitFor(() => expect(receiver.received.length).toBeGreaterThan(1), patient)
    expect(receiver.received.map((received) => received.body.trace_id)).toEqual(
      receiver.received.map(() => body.trace_id),
    )
    expect(new Set(receiver.received.map(({ headers }) => headers['x-event-id'])).size).toBe(1)
  }, 120_000)
})
