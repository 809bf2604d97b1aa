import { createServer, type Socket } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { beforeAll, describe, expect, it } from 'vitest'
import type { NetworkOwner } from '../../../src/base/network.ts'
import { Pace } from '../../../src/base/pace.ts'
import { Accounts } from '../../../src/egress/accounts.ts'
import { Resolver } from '../../../src/egress/resolver.ts'
import {
  closeJailsAfterAll,
  connectThrough,
  noLimits,
  openJail,
  received,
  receivedUntil,
  refused,
  serve,
} from '../../support/egress-jail.ts'

const unlimited = {
  connectionsPerKey: 1_000,
  connectionsPerOrg: 1_000,
  bytesPerSecondPerKey: 0,
  bytesPerSecondPerOrg: 0,
}
const owner = (keyId: string, orgId: string, kind: NetworkOwner['kind'] = 'run') => ({ kind, keyId, orgId })

describe('what the jails of a key and of an organization use together', () => {
  closeJailsAfterAll()
  let port: number
  beforeAll(async () => {
    port = await serve(createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket)))
  })
  const open = (accounts: Accounts, whose: NetworkOwner, limits = noLimits) =>
    openJail({ rules: ['127.0.0.0/8:*'], limits }, {}, '127.0.0.1', [], accounts.open(whose))

  const echoes = async (socket: Socket): Promise<boolean> => {
    await connectThrough(socket, `127.0.0.1:${port}`)
    socket.write('same;')
    return (await receivedUntil(socket, ';')) === 'same;'
  }

  it('are connections, of which another key and another organization keep their own', async () => {
    const accounts = new Accounts({ ...unlimited, connectionsPerKey: 2, connectionsPerOrg: 3 })
    const [first, second] = [await open(accounts, owner('a', 'one')), await open(accounts, owner('a', 'one'))]
    const sockets = [await first.dial(), await second.dial()]
    for (const socket of sockets) expect(await echoes(socket)).toBe(true)
    await refused(second.port)
    expect(second.jail.uses).toContainEqual(expect.objectContaining({ host: '*', verdict: 'refused_limit' }))
    const sibling = await open(accounts, owner('b', 'one'))
    expect(await echoes(await sibling.dial())).toBe(true)
    await refused(sibling.port)
    const other = await open(accounts, owner('c', 'two'))
    expect(await echoes(await other.dial())).toBe(true)
    // A place is free again when a connection has closed.
    const closed = new Promise((resolve) => sockets[0]!.once('close', resolve))
    sockets[0]!.destroy()
    await closed
    while (accounts.totals.run.open > 3) await turn()
    expect(await echoes(await first.dial())).toBe(true)
    expect(accounts.totals.run).toMatchObject({ open: 4, connections: { allowed: 5, refused_limit: 2 } })
  })

  it('is counted for all runs and for all sandboxes, in each direction', async () => {
    const accounts = new Accounts(unlimited)
    const jail = await open(accounts, owner('a', 'one', 'sandbox'))
    expect(await echoes(await jail.dial())).toBe(true)
    expect(accounts.totals).toMatchObject({
      run: { open: 0, connections: {}, sentBytes: 0 },
      sandbox: { open: 1, connections: { allowed: 1 }, sentBytes: 5, receivedBytes: 5 },
    })
  })

  it('is a rate in each direction', () => {
    const accounts = new Accounts({ ...unlimited, bytesPerSecondPerKey: 1_000, bytesPerSecondPerOrg: 500 })
    const [one, two] = [accounts.open(owner('a', 'one')), accounts.open(owner('a', 'one'))]
    const wait = (jail: typeof one, isSent: boolean) =>
      Math.max(...jail.shared.map((account) => account.count(1_000, isSent)))
    // Two seconds for each thousand bytes at the rate of the organization, less what may be ahead of it.
    expect(wait(one, true)).toBeGreaterThan(1_500)
    expect(wait(two, true)).toBeGreaterThan(3_500)
    expect(wait(two, false)).toBeLessThan(2_500)
  })

  it('ends with its last jail', () => {
    const accounts = new Accounts({ ...unlimited, bytesPerSecondPerKey: 1 })
    const count = () => accounts.open(owner('a', 'one')).shared[0]!.count(100, true)
    expect(count()).toBeGreaterThan(90_000)
    expect(count()).toBeGreaterThan(190_000)
    for (const _ of [1, 2]) accounts.close(owner('a', 'one'))
    expect(count()).toBeLessThan(110_000)
  })
})

describe('a limit of the bytes that a run sends', () => {
  closeJailsAfterAll()

  it('ends its connections, and does not count what it receives', async () => {
    const port = await serve(createServer((socket) => void socket.on('data', () => socket.end('x'.repeat(100_000)))))
    const limits = { ...noLimits, sentBytes: 1_000 }
    const { dial, port: proxy } = await openJail({ rules: ['127.0.0.0/8:*'], limits })
    const first = await dial()
    await connectThrough(first, `127.0.0.1:${port}`)
    first.write('few')
    expect(await received(first)).toHaveLength(100_000)
    const second = await dial()
    await connectThrough(second, `127.0.0.1:${port}`)
    second.write(Buffer.alloc(2_000))
    expect(await received(second)).toBe('')
    await refused(proxy)
  })
})

describe('a rate', () => {
  it('is not limited where it is zero', () => {
    expect(new Pace().count(1e12, 0)).toBe(0)
  })
})

describe('names that an organization looks up', () => {
  it('delay its own lookups only, also when their name servers never answer', async () => {
    const asked: string[] = []
    const resolver = new Resolver((host) => {
      asked.push(host)
      return host.endsWith('.slow') ? new Promise(() => undefined) : Promise.resolve(['192.0.2.1'])
    })
    for (let number = 0; number < 500; number++) resolver.resolve(`${number}.slow`, 'hostile').catch(() => undefined)
    const others = Array.from({ length: 20 }, (_, number) => resolver.resolve('a.test', `org${number}`))
    expect(await Promise.all(others)).toEqual(others.map(() => ['192.0.2.1']))
    expect(asked.filter((host) => host.endsWith('.slow'))).toHaveLength(4)
    // Each organization asks for itself, so that no answer shows what another one knows.
    expect(asked.filter((host) => host === 'a.test')).toHaveLength(20)
    for (let number = 0; number < 100; number++)
      resolver.resolve(`more${number}.slow`, 'hostile').catch(() => undefined)
    await expect(resolver.resolve('last.slow', 'hostile')).rejects.toThrow('too many names')
  })
})
