/** Promise 34: a run reaches nothing that its network policy does not allow. */
import { createSocket } from 'node:dgram'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { plain } from '../support/attacks.ts'
import { execute, post } from '../support/calls.ts'
import { disposablePlaces } from '../support/story.ts'

const attackPath = join(import.meta.dirname, 'attacks/leave-network.py')
const attack = readFileSync(attackPath, 'utf8')

interface Outcome {
  reached: string[]
  tried: number
}

const otherRun = 40_404

/** An address of this machine that a process on it reaches: not loopback, if there is another one. */
const address = Object.values(networkInterfaces())
  .flatMap((list) => list ?? [])
  .filter(({ family }) => family === 'IPv4')
  .sort((a, b) => Number(a.internal) - Number(b.internal))[0]!.address

describe('a run with a network policy', () => {
  const place = disposablePlaces()
  const web = createServer((_, response) => response.end('canary'))
  const datagrams = createSocket('udp4', (_, from) => datagrams.send('canary', from.port, from.address))
  let ports: string[]
  beforeAll(async () => {
    await new Promise<void>((resolve) => web.listen(0, '0.0.0.0', resolve))
    await new Promise<void>((resolve) => datagrams.bind(0, '0.0.0.0', resolve))
    ports = [web.address(), datagrams.address()].map((bound) => String((bound as AddressInfo).port))
  })
  afterAll(() => {
    web.close()
    datagrams.close()
  })

  const attackWith = async (network: string): Promise<Outcome> => {
    const here = place()
    const file = join(here.directory, 'glovebox.yaml')
    writeFileSync(file, `network: ${network}\nnetwork_allow: [example.com, "*.example.com:*"]\n`)
    const { url } = await here.start('--dev', '--config', file)
    // Another run that listens for as long as the attack takes.
    const listening = `import socket; s = socket.socket(); s.bind(('0.0.0.0', ${otherRun})); s.listen(); s.accept()`
    const other = { code: listening, language: 'python', timeout: 60 }
    await post(`${url}/v1/sandbox/execute`, other, { prefer: 'respond-async' })
    const words = JSON.stringify(['attack', address, ...ports, String(otherRun)])
    const code = `import sys; sys.argv = ${words}\n${attack}`
    const { stdout, stderr } = await execute(url, 'python', code, { timeout: 60 })
    if (stdout === '') throw new Error(stderr)
    return JSON.parse(stdout) as Outcome
  }

  it('can be left by a program that is not in a sandbox', async () => {
    const { stdout } = await plain('python3', attackPath, address, ...ports, ports[0]!)
    expect(JSON.parse(stdout).reached).toEqual(expect.arrayContaining(['direct', 'datagram', 'other run', 'packet']))
  })

  it.each(['allow', 'public', 'none'])(
    'cannot be left (%s): not directly, with datagrams or raw packets, through the proxy, or in another notation',
    async (network) => {
      expect(await attackWith(network)).toMatchObject({ reached: [], tried: 44 })
    },
  )
})
