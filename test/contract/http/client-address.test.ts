import type { IncomingMessage } from 'node:http'
import { describe, expect, it } from 'vitest'
import { clientAddress, clientNetwork, TrustedProxies } from '../../../src/http/client-address.ts'

const trusted = new TrustedProxies(['10.0.0.0/8', '192.0.2.7', '2001:db8:1::/48'])

const addressOf = (remoteAddress: string, forwarded?: string) =>
  clientAddress(
    { socket: { remoteAddress }, headers: { 'x-forwarded-for': forwarded } } as unknown as IncomingMessage,
    trusted,
  )

describe('the address of a client', () => {
  it('is that of its connection', () => {
    expect(addressOf('203.0.113.9')).toBe('203.0.113.9')
    expect(addressOf('::ffff:203.0.113.9')).toBe('203.0.113.9')
  })

  it('is what a trusted proxy says', () => {
    expect(addressOf('10.1.2.3', '198.51.100.4')).toBe('198.51.100.4')
    expect(addressOf('::ffff:10.1.2.3', '198.51.100.4')).toBe('198.51.100.4')
    expect(addressOf('2001:db8:1::5', '198.51.100.4')).toBe('198.51.100.4')
    expect(addressOf('192.0.2.7', '[2001:db8:9::1]:4711')).toBe('2001:db8:9::1')
    expect(addressOf('192.0.2.7', '198.51.100.4:4711')).toBe('198.51.100.4')
  })

  it('is nothing that anybody else says', () => {
    for (const from of ['203.0.113.9', '11.0.0.1', '192.0.2.8', '2001:db8:2::5']) {
      expect([from, addressOf(from, '198.51.100.4')]).toEqual([from, from])
    }
  })

  it('is read from the end of the list, only as far as those who wrote it are trusted', () => {
    expect(addressOf('10.0.0.1', '1.1.1.1, 198.51.100.4')).toBe('198.51.100.4')
    expect(addressOf('10.0.0.1', '1.1.1.1, 198.51.100.4, 10.9.9.9,10.8.8.8')).toBe('198.51.100.4')
    expect(addressOf('10.0.0.1', '10.2.2.2')).toBe('10.2.2.2')
  })

  it('is the last one that is known where the list makes no sense', () => {
    for (const list of ['', ',', 'unknown', 'evil.example', '999.1.1.1', '1.1.1.1, _hidden', '1.1.1.1,', '"x"']) {
      expect([list, addressOf('10.0.0.1', list)]).toEqual([list, '10.0.0.1'])
    }
  })
})

describe('the network of a client', () => {
  it('is its address, in IPv6 the first 64 bits of it', () => {
    expect(clientNetwork('198.51.100.4')).toBe('198.51.100.4')
    for (const address of [
      '2001:db8:1:2:3:4:5:6',
      '2001:db8:1:2::',
      '2001:0DB8:0001:0002::7',
      '2001:db8:1:2::9%eth0',
    ]) {
      expect([address, clientNetwork(address)]).toEqual([address, '2001:db8:1:2::/64'])
    }
    expect(clientNetwork('2001:db8::1:2:3:4:5')).toBe('2001:db8:0:1::/64')
    expect(clientNetwork('::1')).toBe('0:0:0:0::/64')
  })
})
