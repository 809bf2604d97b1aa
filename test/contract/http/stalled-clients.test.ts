import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import { StalledClients } from '../../../src/http/previews/stalled.ts'

const server = createServer().listen(0, '127.0.0.1')
const opened: Socket[] = []
afterEach(() => {
  for (const socket of opened.splice(0)) socket.destroy()
  server.close()
})

/** Returns the server's end of a connection whose client reads nothing. */
async function deaf(bytes: number): Promise<Socket> {
  const accepted = once(server, 'connection') as Promise<[Socket]>
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').pause()
  const [socket] = await accepted
  for (const each of [client, socket]) each.on('error', () => undefined)
  opened.push(client, socket)
  socket.write(Buffer.alloc(bytes))
  return socket
}

describe('clients of previews that do not read', () => {
  it('are closed beyond some of each organization, while those that nothing waits for stay', async () => {
    const everyMs = 50
    const stalled = new StalledClients(3_600_000, { everyMs, slowMax: 2, leastBytes: 64 * 1024 })
    const [crowd, idle]: [Socket[], Socket[]] = [[], []]
    for (let i = 0; i < 5; i += 1) crowd.push(await deaf(16 * 1024 * 1024))
    for (let i = 0; i < 3; i += 1) idle.push(await deaf(1))
    const alone = await deaf(16 * 1024 * 1024)
    for (const socket of [...crowd, ...idle]) stalled.watch(socket, 'org_a')
    stalled.watch(alone, 'org_b')
    const closed = (sockets: Socket[]) => sockets.filter(({ destroyed }) => destroyed).length
    await expect.poll(() => closed(crowd), { timeout: 30_000 }).toBe(3)
    await sleep(everyMs * 4)
    expect([closed(crowd), closed([alone]), closed(idle)]).toEqual([3, 0, 0])
    stalled.stop()
  })
})
