import { setTimeout as sleep } from 'node:timers/promises'
import { Agent } from 'undici'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { RegistryClient, reasonOf } from '../../../src/registry/client.ts'
import { digestOf, openRegistry, type TestRegistry } from '../../support/test-registry.ts'

describe('a registry that is slow', () => {
  let server: TestRegistry
  const agent = new Agent()
  const blob = Buffer.alloc(1024 * 1024, 'x')

  beforeAll(async () => {
    server = await openRegistry()
    server.image('1', [{ plain: blob, bytes: blob }])
  })
  afterAll(async () => {
    await agent.close()
    await server.close()
  })

  const read = async (windowMs: number, answerMs: number): Promise<number> => {
    const source = { base: `http://${server.host}`, username: '', password: '' }
    const patience = { answerMs, windowMs, windowBytes: 64 * 1024 }
    const client = new RegistryClient(agent, { repository: 'own' }, [source], patience)
    let bytes = 0
    for await (const piece of client.blob(digestOf(blob), 0)) bytes += piece.length
    return bytes
  }

  it('is given up when it does not answer, or stops in the middle', async () => {
    server.misbehave = () => true
    const problem = () => read(60_000, 100).then(() => 'none', reasonOf)
    expect(await problem()).toBe(`${server.host}: it does not answer in time`)
    server.misbehave = (_, response) => response.writeHead(200).write(blob.subarray(0, 1000)) || true
    expect(await problem()).toBe('it stopped sending in the middle of an answer')
  })

  it('is given up when it sends less than is required on average, and not when it sends more', async () => {
    let isOver = false
    server.misbehave = (_, response) => {
      response.writeHead(200)
      const drip = async () => {
        while (!isOver && !response.destroyed) {
          response.write('x')
          await sleep(5)
        }
      }
      void drip()
      return true
    }
    await expect(read(200, 60_000)).rejects.toThrow('it sends too slowly')
    isOver = true
    server.misbehave = () => false
    expect(await read(1, 60_000)).toBe(blob.length)
  })
})
