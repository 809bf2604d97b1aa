import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { mcpClientNames } from '../../src/gateway/client-config.ts'
import { type Front, openFront } from '../support/front.ts'
import { rawRequest, sendRaw, statusOf } from '../support/raw-http.ts'

let front: Front
let withKeys: Front
beforeAll(async () => {
  front = await openFront()
  withKeys = await openFront(undefined, { dev: false })
})
afterAll(async () => {
  await withKeys?.close()
  await front?.close()
})

const navigation = { 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' }

describe('the page at /', () => {
  it('shows the state of the server and the configuration of every client', async () => {
    const response = await fetch(`${front.url}/`)
    const text = await response.text()
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8'])
    expect(text).toContain('Ready: runs can start.')
    expect(text).toContain(`claude mcp add --transport http glovebox ${front.url}/mcp</pre>`)
    for (const client of mcpClientNames) expect(text).toContain(`<div data-client="${client}">`)
    expect(text).not.toContain('YOUR_KEY')
  })

  it('asks for a key and shows where it belongs when callers need one', async () => {
    const text = await (await fetch(`${withKeys.url}/`)).text()
    expect(text).toContain('<label for="key">API key</label>')
    expect(text).toContain('--header &quot;Authorization: Bearer YOUR_KEY&quot;')
  })

  it('runs only files of this server and cannot be framed', async () => {
    const response = await fetch(`${front.url}/`)
    const policy = response.headers.get('content-security-policy')
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'")
    expect(policy).toContain("frame-ancestors 'none'")
    expect(policy).not.toContain('unsafe')
    const text = await response.text()
    expect(text).not.toMatch(/<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|https?:\/\/[^<"]*\.(?:js|css)\b/)
    for (const [path, type] of [
      ['assets/page.js', 'text/javascript'],
      ['assets/page.css', 'text/css'],
    ]) {
      const asset = await fetch(`${front.url}/${path}`)
      expect([asset.status, asset.headers.get('content-type')]).toEqual([200, `${type}; charset=utf-8`])
      expect(text).toContain(`"${path}"`)
    }
  })

  it('escapes what a client sends', async () => {
    const ask = (host: string) => sendRaw(withKeys.port, rawRequest('GET', '/', { host }))
    expect(await ask('a"<b>.example')).not.toContain('<b>')
    expect(await ask('code.example')).toContain('http://code.example/mcp')
  })

  it('can be reached by a link of another site, and nothing else can', async () => {
    const status = async (path: string, more: Record<string, string>) => {
      const headers = { host: `127.0.0.1:${front.port}`, 'sec-fetch-site': 'cross-site', ...more }
      return statusOf(await sendRaw(front.port, rawRequest('GET', path, headers)))
    }
    expect(await status('/', navigation)).toBe(200)
    expect(await status('/', {})).toBe(403)
    expect(await status('/', { ...navigation, 'sec-fetch-dest': 'iframe' })).toBe(403)
    expect(await status('/readyz', navigation)).toBe(403)
  })
})
