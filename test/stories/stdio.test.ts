import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { afterAll, describe, expect, it } from 'vitest'
import { freePort, Place, program } from '../support/glovebox.ts'
import { processesOf } from '../support/machine.ts'

const place = new Place()
afterAll(() => place.remove())

/** Starts a server process, like a desktop client. */
async function connect(port: number): Promise<Client> {
  const env = {
    PATH: process.env.PATH ?? '',
    GLOVEBOX_PORT: `${port}`,
    GLOVEBOX_HOME: join(place.directory, 'home'),
    GLOVEBOX_STATE_DIR: join(place.directory, 'state'),
    GLOVEBOX_FRONT_UID: `${place.frontUid}`,
    GLOVEBOX_FRONT_GID: `${place.frontUid}`,
    GLOVEBOX_SLOTS_READY: '1',
    GLOVEBOX_DRAIN_S: '1',
  }
  const client = new Client({ name: 'desktop', version: '1' })
  await client.connect(new StdioClientTransport({ command: program, args: ['stdio'], env, stderr: 'ignore' }))
  return client
}

const answer = async (client: Client) =>
  client.callTool({ name: 'sandbox_execute', arguments: { code: 'print(6 * 7)' } })

describe('a client that starts glovebox stdio', () => {
  it('starts one server for this host, which other clients join and which ends with the first', async () => {
    const port = await freePort()
    const first = await connect(port)
    expect(await answer(first)).toMatchObject({ content: [{ text: expect.stringContaining('\n42\n') }] })
    const second = await connect(port)
    expect(await answer(second)).toMatchObject({ content: [{ text: expect.stringContaining('\n42\n') }] })
    await second.close()
    expect(await answer(first)).toMatchObject({ content: [{ text: expect.stringContaining('\n42\n') }] })
    await first.close()
    await expect.poll(() => processesOf(place).length, { timeout: 30_000 }).toBe(0)
  }, 120_000)
})
