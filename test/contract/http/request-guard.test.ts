import { describe, expect, it } from 'vitest'
import { door, type GuardRules } from '../../../src/http/request-guard.ts'

const rules: GuardRules = {
  dev: true,
  allowedHosts: ['box.example', 'other.example:9000'],
  allowedOrigins: ['https://app.example'],
}
const json = { 'content-type': 'application/json' }

const arrived = (headers: Record<string, string>, method = 'POST') => ({
  method,
  headers,
  rawHeaders: Object.entries(headers).flat(),
})
const verdict = (headers: Record<string, string>, method = 'POST', port = 5555) =>
  door(rules)(arrived({ host: 'localhost:5555', ...json, ...headers }, method), port)?.code ?? 'admitted'

describe('the host of a request', () => {
  it('is loopback with the port that is served, or a name that is allowed', () => {
    const hosts = ['localhost:5555', 'LOCALHOST:5555', '127.0.0.1:5555', '[::1]:5555', 'box.example', 'box.example:1']
    for (const host of [...hosts, 'other.example:9000']) expect([host, verdict({ host })]).toEqual([host, 'admitted'])
    expect(verdict({ host: 'localhost' }, 'POST', 80)).toBe('admitted')
  })

  it('is no other name, such as one that was made to resolve to loopback', () => {
    const hosts = ['', 'evil.example', 'evil.example:5555', 'localhost', 'localhost:80', '127.0.0.1.evil.example:5555']
    const odd = ['localhost.evil:5555', 'localhost:5555@evil', 'localhost:5555 ', '[::1', '::1:5555', '0.0.0.0:5555']
    const others = ['127.0.0.2:5555', 'other.example:9001', 'xbox.example', 'box.example.evil', 'localhost:05555x']
    for (const host of [...hosts, ...odd, ...others]) {
      expect([host, verdict({ host })]).toEqual([host, 'host_not_allowed'])
    }
  })
})

describe('a door', () => {
  it('asks every request again, whoever was let in before it', () => {
    const admit = door(rules)
    const verdicts = (...requests: [string, number][]) =>
      requests.map(([host, port]) => admit(arrived({ host, ...json }), port)?.code ?? 'admitted')
    expect(
      verdicts(['localhost:5555', 5555], ['evil.example', 5555], ['localhost:5555', 80], ['localhost:5555', 5555]),
    ).toEqual(['admitted', 'host_not_allowed', 'host_not_allowed', 'admitted'])
    expect(door(rules)(arrived({ ...json }), 5555)?.code).toBe('host_not_allowed')
    expect(door(rules)(arrived({ ...json }), 0)?.code).toBe('host_not_allowed')
  })
})

describe('a request with two hosts', () => {
  it('is refused in any case, since a proxy may have read the other one', () => {
    const headers = { host: 'localhost:5555', ...json }
    const rawHeaders = ['Host', 'localhost:5555', 'content-type', 'application/json', 'HOST', 'localhost:5555']
    for (const dev of [true, false])
      expect(door({ ...rules, dev })({ method: 'POST', headers, rawHeaders }, 5555)?.code).toBe('invalid_request')
  })
})

describe('the host of a request that needs a key', () => {
  const admitted = (host: string, allowedHosts: string[], port = 5555) =>
    door({ dev: false, allowedHosts, allowedOrigins: [] })(arrived({ host, ...json }), port)?.code ?? 'admitted'

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

  it('is refused where the browser says that it comes from another site, on every method', () => {
    for (const site of ['cross-site', 'same-site', 'anything']) {
      expect(verdict({ 'sec-fetch-site': site })).toBe('origin_not_allowed')
      expect(verdict({ 'sec-fetch-site': site }, 'GET')).toBe('origin_not_allowed')
    }
    for (const site of ['none', 'same-origin']) expect(verdict({ 'sec-fetch-site': site })).toBe('admitted')
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
  it('is JSON in UTF-8', () => {
    const types = ['application/json', 'Application/JSON', 'application/json; charset=utf-8']
    for (const type of [...types, 'application/json;charset="UTF-8"']) {
      expect([type, verdict({ 'content-type': type })]).toEqual([type, 'admitted'])
    }
  })

  it('is nothing that a form or a simple request can send', () => {
    const simple = ['', 'text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']
    const odd = ['text/plain; application/json', 'application/jsonx', 'application/json; charset=utf-16', 'json']
    for (const type of [...simple, ...odd]) {
      expect([type, verdict({ 'content-type': type })]).toEqual([type, 'wrong_content_type'])
    }
    expect(door(rules)(arrived({ host: 'localhost:5555' }), 5555)?.code).toBe('wrong_content_type')
  })

  it('does not matter on other methods', () => {
    expect(verdict({ 'content-type': 'text/plain' }, 'GET')).toBe('admitted')
  })
})
