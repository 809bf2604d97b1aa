import { fastify } from 'fastify'
import { afterAll, describe, expect, it } from 'vitest'
import { clientNetwork, toTrustProxy } from '../../../src/http/client-address.ts'

/** A server that answers with the network of its client. */
const serverThatTrusts = (proxies: readonly string[]) => {
  const app = fastify({ trustProxy: proxies.length > 0 && toTrustProxy(proxies) })
  app.get('/', async (request) => clientNetwork(request.ip, request.socket.remoteAddress ?? ''))
  return app
}

const server = serverThatTrusts(['10.0.0.0/8', '192.0.2.7', '2001:db8:1::/48'])
afterAll(() => server.close())

const networkOf = async (remoteAddress: string, forwarded?: string, app = server): Promise<string> => {
  const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded }
  return (await app.inject({ url: '/', remoteAddress, headers })).body
}

describe('the network of a client', () => {
  it('is the address of its connection', async () => {
    expect(await networkOf('203.0.113.9')).toBe('203.0.113.9')
    expect(await networkOf('::ffff:203.0.113.9')).toBe('203.0.113.9')
  })

  it('is the address that a trusted proxy forwards', async () => {
    expect(await networkOf('10.1.2.3', '198.51.100.4')).toBe('198.51.100.4')
    expect(await networkOf('::ffff:10.1.2.3', '198.51.100.4')).toBe('198.51.100.4')
    expect(await networkOf('2001:db8:1::5', '198.51.100.4')).toBe('198.51.100.4')
    expect(await networkOf('192.0.2.7', '[2001:db8:9::1]:4711')).toBe('2001:db8:9:0::/64')
    expect(await networkOf('192.0.2.7', '198.51.100.4:4711')).toBe('198.51.100.4')
  })

  it('ignores what any other sender forwards', async () => {
    for (const from of ['203.0.113.9', '11.0.0.1', '192.0.2.8'])
      expect([from, await networkOf(from, '198.51.100.4')]).toEqual([from, from])
    expect(await networkOf('2001:db8:2::5', '198.51.100.4')).toBe('2001:db8:2:0::/64')
    const trustsNobody = serverThatTrusts([])
    expect(await networkOf('10.0.0.1', '198.51.100.4', trustsNobody)).toBe('10.0.0.1')
    await trustsNobody.close()
  })

  it('is read from the end of the list as far as its proxies are trusted', async () => {
    expect(await networkOf('10.0.0.1', '1.1.1.1, 198.51.100.4')).toBe('198.51.100.4')
    expect(await networkOf('10.0.0.1', '1.1.1.1, 198.51.100.4, 10.9.9.9,10.8.8.8')).toBe('198.51.100.4')
    expect(await networkOf('10.0.0.1', '10.2.2.2')).toBe('10.2.2.2')
  })

  it('trusts every proxy of a network of 0 bits', async () => {
    const trustsAll = serverThatTrusts(['0.0.0.0/0', '::/0'])
    for (const proxy of ['10.0.0.1', '203.0.113.9', '2001:db8::1', 'fe80::1']) {
      expect([proxy, await networkOf(proxy, '198.51.100.4', trustsAll)]).toEqual([proxy, '198.51.100.4'])
    }
    await trustsAll.close()
  })

  it('is the address of the connection where a proxy forwards no address', async () => {
    for (const list of ['', ',', 'unknown', 'evil.example', '999.1.1.1', '1.1.1.1, _hidden', '"x"']) {
      expect([list, await networkOf('10.0.0.1', list)]).toEqual([list, '10.0.0.1'])
    }
  })

  it('is the first 64 bits of an IPv6 address', () => {
    expect(clientNetwork('198.51.100.4', '')).toBe('198.51.100.4')
    for (const address of [
      '2001:db8:1:2:3:4:5:6',
      '2001:db8:1:2::',
      '2001:0DB8:0001:0002::7',
      '2001:db8:1:2::9%eth0',
    ]) {
      expect([address, clientNetwork(address, '')]).toEqual([address, '2001:db8:1:2::/64'])
    }
    expect(clientNetwork('2001:db8::1:2:3:4:5', '')).toBe('2001:db8:0:1::/64')
    expect(clientNetwork('::1', '')).toBe('0:0:0:0::/64')
  })
})
