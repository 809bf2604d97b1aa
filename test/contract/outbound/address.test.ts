import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type AddressClass, classOf } from '../../../src/outbound/address.ts'
import { AllowedDestinations, requireAllowed, toDestination } from '../../../src/outbound/destination.ts'

const v4 = (number: number) => [24, 16, 8, 0].map((shift) => (number >>> shift) & 255).join('.')
const v6 = (bits: bigint) =>
  Array.from({ length: 8 }, (_, group) => ((bits >> BigInt(112 - 16 * group)) & 0xffffn).toString(16)).join(':')

const bits6 = (address: string): bigint => {
  const [head = '', tail = ''] = address.split('::')
  const groups = (text: string) => text.split(':').filter((group) => group !== '')
  const zeros = address.includes('::') ? 8 - groups(head).length - groups(tail).length : 0
  const all = [...groups(head), ...Array<string>(zeros).fill('0'), ...groups(tail)]
  return all.reduce((bits, group) => (bits << 16n) | BigInt(`0x${group}`), 0n)
}

/** Written down again, as numbers, so that an error in the table does not repeat itself here. */
const refused4: [first: number, last: number][] = [
  [0x00000000, 0x00ffffff],
  [0x0a000000, 0x0affffff],
  [0x64400000, 0x647fffff],
  [0x7f000000, 0x7fffffff],
  [0xa9fe0000, 0xa9feffff],
  [0xac100000, 0xac1fffff],
  [0xc0000000, 0xc00000ff],
  [0xc0000200, 0xc00002ff],
  [0xc0586300, 0xc05863ff],
  [0xc0a80000, 0xc0a8ffff],
  [0xc6120000, 0xc613ffff],
  [0xc6336400, 0xc63364ff],
  [0xcb007100, 0xcb0071ff],
  [0xe0000000, 0xffffffff],
]

const refused6: [network: string, prefix: number][] = [
  ['::', 96],
  ['::ffff:0:0', 96],
  ['64:ff9b::', 96],
  ['64:ff9b:1::', 48],
  ['100::', 64],
  ['2001::', 32],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['fc00::', 7],
  ['fe80::', 10],
  ['fec0::', 10],
  ['ff00::', 8],
]

describe('the class of an address', () => {
  it('is not public for any address of a special network', () => {
    for (const [first, last] of refused4) {
      const inside = fc.integer({ min: first, max: last })
      fc.assert(
        fc.property(inside, (number) => classOf(v4(number)) !== 'public'),
        { examples: [[first], [last]] },
      )
    }
    for (const [network, prefix] of refused6) {
      const first = bits6(network)
      const last = first | ((1n << BigInt(128 - prefix)) - 1n)
      const inside = fc.bigInt({ min: first, max: last })
      fc.assert(
        fc.property(inside, (bits) => classOf(v6(bits)) !== 'public'),
        { examples: [[first], [last]] },
      )
    }
  })

  it('is not public for any form of IPv6 that embeds an IPv4 address, whichever that is', () => {
    const forms = [
      (number: bigint) => number,
      (number: bigint) => (0xffffn << 32n) | number,
      (number: bigint) => (0xffffn << 48n) | number,
      (number: bigint) => bits6('64:ff9b::') | number,
      (number: bigint) => bits6('64:ff9b:1::') | number,
      (number: bigint) => bits6('2002::') | (number << 80n),
      (number: bigint) => bits6('2001::') | (number ^ 0xffffffffn),
    ]
    const number = fc.integer({ min: 0, max: 0xffffffff })
    fc.assert(fc.property(number, (given) => forms.every((form) => classOf(v6(form(BigInt(given)))) !== 'public')))
    expect(classOf('::ffff:8.8.8.8')).toBe('embedded')
    expect(classOf('::127.0.0.1')).toBe('embedded')
  })

  it('is public outside these networks, and for IPv6 inside 2000::/3 only', () => {
    const isRefused = (number: number) => refused4.some(([first, last]) => number >= first && number <= last)
    const others: AddressClass[] = ['reserved']
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 0xffffffff }), (number) => {
        fc.pre(!isRefused(number))
        // A few single blocks with a special purpose are rejected beyond those above.
        return classOf(v4(number)) === 'public' || others.includes(classOf(v4(number)))
      }),
    )
    for (const address of ['8.8.8.8', '1.1.1.1', '93.184.216.34', '172.32.0.1', '100.128.0.1', '2606:4700::1111']) {
      expect([address, classOf(address)]).toEqual([address, 'public'])
    }
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: (1n << 128n) - 1n }), (bits) => {
        return bits >> 125n === 1n || classOf(v6(bits)) !== 'public'
      }),
    )
  })

  it('is reserved for everything that is not a plain address', () => {
    for (const text of ['', 'localhost', '127.1', '0x7f.0.0.1', '2606:4700::1%eth0', '8.8.8.8:80', '1.2.3.4.5']) {
      expect([text, classOf(text)]).toEqual([text, 'reserved'])
    }
  })
})

const nothing = new AllowedDestinations([])
const code = (work: () => unknown): string => {
  try {
    work()
    return 'taken'
  } catch (error) {
    return (error as { code: string }).code
  }
}

describe('a webhook address', () => {
  it('is accepted when it is https, at a usual port, with a public host', () => {
    for (const url of [
      'https://hooks.example.com/x?y=1',
      'https://8.8.8.8/',
      'https://[2606:4700::1111]/',
      'https://a.b:443',
    ]) {
      expect([url, code(() => toDestination('u', url, nothing))]).toEqual([url, 'taken'])
    }
  })

  it('is rejected in every unusual notation, with credentials, and with other schemes', () => {
    const odd = [
      'https://2130706433/',
      'https://0x7f000001/',
      'https://0x7f.0.0.1/',
      'https://017700000001/',
      'https://0177.0.0.1/',
      'https://127.1/',
      'https://134744072/',
      'https://8.8.2056/',
      'https://user@8.8.8.8/',
      'https://user:password@host.example/',
      'https://@host.example/',
      'https://host.example\\@evil.example/',
      'https://hö.example/',
      'https://host.example/\n',
      ' https://host.example/',
      'ftp://host.example/',
      'file:///etc/passwd',
      'gopher://host.example/',
      'https://',
      'https:///x',
      'host.example',
      `https://host.example/${'x'.repeat(3_000)}`,
    ]
    for (const url of odd) {
      expect([url, code(() => toDestination('u', url, nothing))]).not.toEqual([url, 'taken'])
    }
  })

  it('is rejected as plain http, at other ports, and when it names an internal address', () => {
    const urls = [
      'http://host.example/',
      'https://host.example:8443/',
      'https://host.example:22/',
      'https://127.0.0.1/',
      'https://[::1]/',
      'https://[::ffff:8.8.8.8]/',
      'https://[64:ff9b::808:808]/',
      'https://169.254.169.254/latest/meta-data/',
      'https://0.0.0.0/',
      'https://10.0.0.1/',
      'https://[fd00:ec2::254]/',
    ]
    for (const url of urls) {
      expect([url, code(() => toDestination('u', url, nothing))]).toEqual([url, 'destination_refused'])
    }
  })

  it('is accepted when the operator allows its host or network, and nothing beyond', () => {
    const allowed = new AllowedDestinations(['Hooks.internal', '10.1.0.0/16', '::1'])
    const taken = ['http://hooks.internal:8080/', 'http://10.1.2.3:99/', 'http://[::1]:1/', 'http://may-be.example/']
    for (const url of taken) expect([url, code(() => toDestination('u', url, allowed))]).toEqual([url, 'taken'])
    for (const url of ['http://10.2.0.1/', 'https://127.0.0.1/', 'http://8.8.8.8/']) {
      expect([url, code(() => toDestination('u', url, allowed))]).toEqual([url, 'destination_refused'])
    }
    const named = toDestination('u', 'http://hooks.internal:8080/', allowed)
    expect(code(() => requireAllowed(named, ['10.9.9.9', '127.0.0.1'], allowed))).toBe('taken')
    expect(code(() => requireAllowed(named, ['169.254.169.254'], allowed))).toBe('destination_refused')
    const unnamed = toDestination('u', 'http://may-be.example/', allowed)
    expect(code(() => requireAllowed(unnamed, ['10.1.0.1'], allowed))).toBe('taken')
    expect(code(() => requireAllowed(unnamed, ['8.8.8.8'], allowed))).toBe('destination_refused')
    expect(code(() => requireAllowed(unnamed, ['10.1.0.1', '10.2.0.1'], allowed))).toBe('destination_refused')
  })
})
