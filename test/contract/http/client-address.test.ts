import type { Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { clientNetwork } from '../../../src/http/client-address.ts'
import { forwardedReader } from '../../../src/http/forwarded.ts'

const proxies = ['10.0.0.0/8', '192.0.2.7', '2001:db8:1::/48']

/** Reads what these headers say when they come from an address. */
const readFrom = (remoteAddress: string, headers: Record<string, string>, trusted: readonly string[] = proxies) =>
  forwardedReader(trusted)({ headers, socket: { remoteAddress } as Socket })

const networkOf = (remoteAddress: string, list?: string, trusted = proxies): string =>
  clientNetwork(readFrom(remoteAddress, list === undefined ? {} : { 'x-forwarded-for': list }, trusted).address)

describe('the network of a client', () => {
  it('is the address of its connection', () => {
    expect(networkOf('203.0.113.9')).toBe('203.0.113.9')
    expect(networkOf('::ffff:203.0.113.9')).toBe('203.0.113.9')
  })

  it('is the address that a trusted proxy forwards', () => {
    expect(networkOf('10.1.2.3', '198.51.100.4')).toBe('198.51.100.4')
    expect(networkOf('::ffff:10.1.2.3', '198.51.100.4')).toBe('198.51.100.4')
    expect(networkOf('2001:db8:1::5', '198.51.100.4')).toBe('198.51.100.4')
    expect(networkOf('192.0.2.7', '[2001:db8:9::1]:4711')).toBe('2001:db8:9:0::/64')
    expect(networkOf('192.0.2.7', '198.51.100.4:4711')).toBe('198.51.100.4')
  })

  it('ignores what any other sender forwards', () => {
    for (const from of ['203.0.113.9', '11.0.0.1', '192.0.2.8'])
      expect([from, networkOf(from, '198.51.100.4')]).toEqual([from, from])
    expect(networkOf('2001:db8:2::5', '198.51.100.4')).toBe('2001:db8:2:0::/64')
    expect(networkOf('10.0.0.1', '198.51.100.4', [])).toBe('10.0.0.1')
  })

  it('is read from the end of the list as far as its proxies are trusted', () => {
    expect(networkOf('10.0.0.1', '1.1.1.1, 198.51.100.4')).toBe('198.51.100.4')
    expect(networkOf('10.0.0.1', '1.1.1.1, 198.51.100.4, 10.9.9.9,10.8.8.8')).toBe('198.51.100.4')
    expect(networkOf('10.0.0.1', '10.2.2.2')).toBe('10.2.2.2')
  })

  it('trusts every proxy of a network of 0 bits', () => {
    const all = ['0.0.0.0/0', '::/0']
    for (const proxy of ['10.0.0.1', '203.0.113.9', '2001:db8::1', 'fe80::1']) {
      expect([proxy, networkOf(proxy, '198.51.100.4', all)]).toEqual([proxy, '198.51.100.4'])
    }
  })

  it('is the address of the connection where a proxy forwards no address', () => {
    for (const list of ['', ',', 'unknown', 'evil.example', '999.1.1.1', '1.1.1.1, _hidden', '"x"']) {
      expect([list, networkOf('10.0.0.1', list)]).toEqual([list, '10.0.0.1'])
    }
  })

  it('is the first 64 bits of an IPv6 address', () => {
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

describe('the address of the server as a client sees it', () => {
  const host = 'internal:5555'
  const seen = (headers: Record<string, string>, from = '10.0.0.1') => {
    const { protocol, host: name, prefix } = readFrom(from, { host, ...headers })
    return `${protocol}://${name}${prefix}`
  }

  it('is what a trusted proxy forwards', () => {
    const all = { 'x-forwarded-proto': 'https', 'x-forwarded-host': 'code.example', 'x-forwarded-prefix': '/gb/' }
    expect(seen(all)).toBe('https://code.example/gb')
    expect(seen({ forwarded: 'for=198.51.100.4;proto=https;host="code.example:8443"' })).toBe(
      'https://code.example:8443',
    )
    expect(seen({ 'x-forwarded-proto': 'HTTPS' })).toBe('https://internal:5555')
    expect(seen({})).toBe('http://internal:5555')
    expect(seen(all, '203.0.113.9')).toBe('http://internal:5555')
    expect(seen({ forwarded: 'proto=https;host=code.example' }, '203.0.113.9')).toBe('http://internal:5555')
  })

  it('is what the trusted proxy that is farthest received', () => {
    const chain = { 'x-forwarded-for': '1.1.1.1, 198.51.100.4, 10.9.9.9' }
    const each = { 'x-forwarded-proto': 'http, https, http', 'x-forwarded-host': 'evil.example, code.example, inner' }
    expect(seen({ ...chain, ...each })).toBe('https://code.example')
    expect(seen({ ...chain, 'x-forwarded-proto': 'https', 'x-forwarded-host': 'code.example' })).toBe(
      'https://code.example',
    )
    const elements =
      'for=1.1.1.1;host=evil.example, for="198.51.100.4:80";proto=https;host=code.example, for=10.9.9.9;host=inner'
    expect(seen({ forwarded: elements })).toBe('https://code.example')
    expect(readFrom('10.0.0.1', { forwarded: elements }).address).toBe('198.51.100.4:80')
  })

  it('does not come from Forwarded where the proxy sends X-Forwarded-*, and never from malformed values', () => {
    const passedOn = { forwarded: 'for=6.6.6.6;host=evil.example;proto=https' }
    expect(seen({ ...passedOn, 'x-forwarded-for': '198.51.100.4' })).toBe('http://internal:5555')
    expect(readFrom('10.0.0.1', { ...passedOn, 'x-forwarded-for': '198.51.100.4' }).address).toBe('198.51.100.4')
    for (const name of ['a b', 'x/y', 'u@h', 'a:b', '<x>', 'x'.repeat(300)]) {
      expect([name, seen({ 'x-forwarded-host': name })]).toEqual([name, 'http://internal:5555'])
    }
    for (const prefix of ['gb', '//evil.example', '/a?b', '/a b', '/%2f']) {
      expect([prefix, seen({ 'x-forwarded-prefix': prefix })]).toEqual([prefix, 'http://internal:5555'])
    }
  })
})
