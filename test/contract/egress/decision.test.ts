import { describe, expect, it } from 'vitest'
import { type JailNetwork, parseRule } from '../../../src/base/network.ts'
import { Decision, NetworkRefused, type RequestLine } from '../../../src/egress/decision.ts'

const limits = { connections: 10, bytes: 0, bytesPerSecond: 0 }
const own = '8.8.4.4'
const decide = (policy: JailNetwork['policy'], ...rules: string[]) =>
  new Decision({ policy, rules, limits }, (address) => address === own)

/** `allowed`, or the verdict, for a destination and one of its addresses. */
function verdict(decision: Decision, host: string, port: number, address = '93.184.216.34', request?: RequestLine) {
  try {
    decision.requireTarget({ host, port }, request)
    decision.requireAddress(address, { host, port })
    return 'allowed'
  } catch (error) {
    return error instanceof NetworkRefused ? error.verdict : error
  }
}

describe('a rule', () => {
  it.each([
    'example.com',
    'Example.COM',
    '*.example.com:8443',
    'example.com:*',
    '10.0.0.0/8',
    '10.1.2.3:5432',
    '[2001:db8::/32]:443',
    '[fd00::1]',
    'GET|HEAD example.com/v1/',
    'example.com:8080/v1/',
    'localhost:3000',
  ])('can be %s', (text) => {
    expect(parseRule(text)).toBeDefined()
  })

  it.each([
    '',
    '*',
    '*.',
    '.com',
    'https://example.com',
    'user@example.com',
    'exa mple.com',
    'example.com:0',
    'example.com:65536',
    '10.0.0.0/33',
    '[::1/129]',
    '2001:db8::1',
    '2130706433',
    '0x7f.1',
    '127.1',
    'get example.com',
    'a'.repeat(300),
  ])('cannot be %s', (text) => {
    expect(parseRule(text)).toBeUndefined()
  })
})

describe('a policy', () => {
  it('allows the names that it lists, in any case and with a dot at the end, on their ports', () => {
    const allow = decide('allow', 'example.com', '*.example.org:8443', 'any.example:*')
    expect(verdict(allow, 'EXAMPLE.com.', 443)).toBe('allowed')
    expect(verdict(allow, 'example.com', 80)).toBe('allowed')
    expect(verdict(allow, 'example.com', 22)).toBe('refused_destination')
    expect(verdict(allow, 'a.b.example.org', 8443)).toBe('allowed')
    expect(verdict(allow, 'example.org', 8443)).toBe('refused_destination')
    expect(verdict(allow, 'any.example', 22)).toBe('allowed')
    expect(verdict(allow, 'notexample.com', 443)).toBe('refused_destination')
    expect(verdict(allow, 'example.com.evil.test', 443)).toBe('refused_destination')
    expect(verdict(allow, '93.184.216.34', 443)).toBe('refused_destination')
  })

  it('refuses a name that leads to an address which is not public, unless a network lists it', () => {
    for (const address of [
      '10.0.0.1',
      '127.0.0.1',
      '169.254.169.254',
      '100.64.0.1',
      '::1',
      'fe80::1',
      'fd00::1',
      own,
    ]) {
      expect([address, verdict(decide('public'), 'example.com', 443, address)]).toEqual([address, 'refused_address'])
      expect([address, verdict(decide('allow', 'example.com'), 'example.com', 443, address)]).toEqual([
        address,
        'refused_address',
      ])
    }
    const listed = decide('allow', 'example.com', '10.0.0.0/8:443', '[fd00::/8]:443', `${own}:443`)
    for (const address of ['10.0.0.1', 'fd00::1', own])
      expect([address, verdict(listed, 'example.com', 443, address)]).toEqual([address, 'allowed'])
    expect(verdict(listed, 'example.com', 80, '10.0.0.1')).toBe('refused_address')
  })

  it('never takes an address with another one in it for that one', () => {
    const listed = decide('allow', '10.0.0.0/8:*', '0.0.0.0/0:*', 'example.com:*')
    for (const address of ['::ffff:10.0.0.1', '64:ff9b::a00:1', '2002:a00:1::', '::10.0.0.1']) {
      expect([address, verdict(listed, 'example.com', 443, address)]).toEqual([address, 'refused_address'])
      expect([address, verdict(listed, address, 443, address)]).toEqual([address, 'refused_destination'])
      expect([address, verdict(decide('public'), address, 443, address)]).toEqual([address, 'refused_address'])
    }
  })

  it('public allows every name and every public address on every port', () => {
    expect(verdict(decide('public'), 'example.com', 22)).toBe('allowed')
    expect(verdict(decide('public'), '93.184.216.34', 5000)).toBe('allowed')
    expect(verdict(decide('public'), '192.168.1.1', 80, '192.168.1.1')).toBe('refused_address')
    expect(verdict(decide('public', '192.168.0.0/16'), '192.168.1.1', 80, '192.168.1.1')).toBe('allowed')
  })

  it('limits the methods and paths of requests that can be read, and refuses connections that cannot', () => {
    const limited = decide('allow', 'GET|HEAD example.com/v1/')
    const ask = (method: string, path: string) => verdict(limited, 'example.com', 80, undefined, { method, path })
    expect(ask('GET', '/v1/models?limit=1')).toBe('allowed')
    expect(ask('POST', '/v1/models')).toBe('refused_destination')
    expect(ask('GET', '/v2/models')).toBe('refused_destination')
    for (const path of ['/v1/../v2', '/v1/%2e%2e/v2', '/v1/..', '/v1//x', '/v1/\\..\\v2'])
      expect([path, ask('GET', path)]).toEqual([path, 'refused_destination'])
    expect(verdict(limited, 'example.com', 443)).toBe('refused_destination')
    expect(limited.dependsOnRequests({ host: 'example.com', port: 80 })).toBe(true)
  })

  it('refuses what is no name, and shows nothing of it that ends a line', () => {
    expect(() => decide('public').requireTarget({ host: 'a\r\nb: c', port: 80 })).toThrow('a??b:?c:80 is no name')
  })
})

describe('the policy packages', () => {
  it('reaches an index at a private address that is in a named network, and nothing else there', () => {
    const network = { policy: 'packages', rules: ['index.example'], networks: ['10.0.0.0/8'], limits } as const
    const decision = new Decision(network, () => false)
    expect(verdict(decision, 'index.example', 443, '10.1.2.3')).toBe('allowed')
    expect(verdict(decision, 'index.example', 443, '192.168.0.1')).toBe('refused_address')
    expect(verdict(decision, '10.1.2.3', 443, '10.1.2.3')).toBe('refused_destination')
    expect(verdict(decision, 'other.example', 443, '10.1.2.3')).toBe('refused_destination')
  })
})
