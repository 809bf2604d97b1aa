import { describe, expect, it } from 'vitest'
import { checkContentType, type GuardRules, requestGuard } from '../../../src/http/request-guard.ts'

const rules: GuardRules = {
  dev: true,
  allowedHosts: ['box.example', 'other.example:9000'],
  allowedOrigins: ['https://app.example'],
}

const headOf = (headers: Record<string, string>) => ({ headers, rawHeaders: Object.entries(headers).flat() })
const verdict = (headers: Record<string, string>) =>
  requestGuard(rules)(headOf({ host: 'localhost:5555', ...headers }))?.code ?? 'admitted'

describe('the host of a request', () => {
  it('is loopback on any port, or a name that is allowed, also with a trailing dot', () => {
    const hosts = ['localhost:5555', 'LOCALHOST:5555', '127.0.0.1:5555', '[::1]:5555', 'box.example', 'box.example:1']
    for (const host of [...hosts, 'other.example:9000']) expect([host, verdict({ host })]).toEqual([host, 'admitted'])
    const mapped = [
      'localhost',
      'localhost:80',
      'localhost.:8080',
      '127.0.0.1:1',
      '[::1]',
      'box.example.',
      'other.example.:9000',
    ]
    for (const host of mapped) expect([host, verdict({ host })]).toEqual([host, 'admitted'])
  })

  it('is no other name, such as one that was made to resolve to loopback', () => {
    const hosts = ['', 'evil.example', 'evil.example:5555', '.', 'localhost..', '127.0.0.1.evil.example:5555']
    const odd = ['localhost.evil:5555', 'localhost:5555@evil', 'localhost:5555 ', '[::1', '::1:5555', '0.0.0.0:5555']
    const others = ['127.0.0.2:5555', 'other.example:9001', 'xbox.example', 'box.example.evil', 'localhost:05555x']
    for (const host of [...hosts, ...odd, ...others]) {
      expect([host, verdict({ host })]).toEqual([host, 'host_not_allowed'])
    }
  })
})

describe('a request guard', () => {
  it('checks every request, whatever it admitted before', () => {
    const guard = requestGuard(rules)
    const verdicts = (...hosts: string[]) => hosts.map((host) => guard(headOf({ host }))?.code ?? 'admitted')
    expect(verdicts('localhost:5555', 'evil.example', 'localhost:80', 'localhost:5555')).toEqual([
      'admitted',
      'host_not_allowed',
      'admitted',
      'admitted',
    ])
    expect(requestGuard(rules)(headOf({}))?.code).toBe('host_not_allowed')
  })
})

describe('a request with two Host headers', () => {
  it('is refused, since a proxy may have read the other one', () => {
    const headers = { host: 'localhost:5555' }
    const rawHeaders = ['Host', 'localhost:5555', 'HOST', 'localhost:5555']
    for (const dev of [true, false])
      expect(requestGuard({ ...rules, dev })({ headers, rawHeaders })?.code).toBe('invalid_request')
  })
})

describe('the host of a request that needs a key', () => {
  const admitted = (host: string, allowedHosts: string[]) =>
    requestGuard({ dev: false, allowedHosts, allowedOrigins: [] })(headOf({ host }))?.code ?? 'admitted'

  it('is any name, unless names are listed', () => {
    for (const host of ['box.example', '203.0.113.7:5555', 'localhost']) {
      expect([host, admitted(host, [])]).toEqual([host, 'admitted'])
    }
    expect(admitted('box.example', ['box.example'])).toBe('admitted')
    expect(admitted('127.0.0.1:5555', ['box.example'])).toBe('admitted')
    expect(admitted('evil.example', ['box.example'])).toBe('host_not_allowed')
  })
})

describe('a request of a web page', () => {
  it('is refused by its origin', () => {
    for (const origin of ['https://evil.example', 'null', '', 'http://localhost:5556', 'https://app.example.evil']) {
      expect([origin, verdict({ origin })]).toEqual([origin, 'origin_not_allowed'])
    }
  })

  it('is refused where the browser reports another site', () => {
    for (const site of ['cross-site', 'same-site', 'anything'])
      expect(verdict({ 'sec-fetch-site': site })).toBe('origin_not_allowed')
    for (const site of ['none', 'same-origin']) expect(verdict({ 'sec-fetch-site': site })).toBe('admitted')
  })

  it('passes where a user follows a signed link, and nowhere else', () => {
    const navigation = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' }
    const verdictOn = (method: string, url: string, headers: Record<string, string>) =>
      requestGuard(rules)({ ...headOf({ host: 'localhost:5555', ...headers }), method, url })?.code ?? 'admitted'
    expect(verdictOn('GET', '/v1/blobs/token', navigation)).toBe('admitted')
    const others: [string, string, Record<string, string>][] = [
      ['GET', '/v1/threads', navigation],
      ['GET', '/v1/blobs', navigation],
      ['PUT', '/v1/blobs/token', navigation],
      ['GET', '/v1/blobs/token', { ...navigation, 'sec-fetch-mode': 'no-cors' }],
      ['GET', '/v1/blobs/token', { ...navigation, 'sec-fetch-dest': 'iframe' }],
      ['GET', '/v1/blobs/token', { ...navigation, origin: 'https://evil.example' }],
    ]
    for (const request of others) expect([request, verdictOn(...request)]).toEqual([request, 'origin_not_allowed'])
  })

  it('passes from a page that this server itself served', () => {
    expect(verdict({ host: 'localhost:5555', origin: 'http://localhost:5555' })).toBe('admitted')
    expect(verdict({ host: 'evil.example', origin: 'http://evil.example' })).toBe('host_not_allowed')
  })

  it('passes from an origin that is allowed', () => {
    expect(verdict({ origin: 'https://app.example', 'sec-fetch-site': 'cross-site' })).toBe('admitted')
  })
})

describe('the content type of a POST', () => {
  const verdictOn = (type: string | undefined, method = 'POST') => checkContentType(method, type)?.code ?? 'admitted'

  it('is JSON in UTF-8', () => {
    const types = ['application/json', 'Application/JSON', 'application/json; charset=utf-8', 'application/json;']
    const quoted = ['application/json;charset="UTF-8"', 'application/json; charset=UTF8', 'application/json; v=1']
    for (const type of [...types, ...quoted]) expect([type, verdictOn(type)]).toEqual([type, 'admitted'])
  })

  it('is nothing that a form or a simple request can send', () => {
    const simple = ['', 'text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']
    const odd = ['text/plain; application/json', 'application/jsonx', 'application/json; charset=utf-16', 'json']
    const joined = ['text/plain, application/json', 'application/json, text/plain', 'text/plain; x="application/json"']
    for (const type of [...simple, ...odd, ...joined]) {
      expect([type, verdictOn(type)]).toEqual([type, 'wrong_content_type'])
    }
    expect(verdictOn(undefined)).toBe('wrong_content_type')
  })

  it('does not matter on other methods', () => {
    expect(verdictOn('text/plain', 'GET')).toBe('admitted')
  })
})
