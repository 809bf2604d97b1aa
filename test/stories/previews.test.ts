/** A web server in a sandbox, as its user sees it in a browser. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { chromiumPath, openBrowser } from '../support/browser.ts'
import { post } from '../support/calls.ts'
import { freePort, type Glovebox, Place, program } from '../support/glovebox.ts'
import { newKey, type OwnKey } from '../support/keys.ts'

/** Serves a page whose script uses a WebSocket, and tries what a hostile page would. */
const page = String.raw`
const { createHash } = require('node:crypto')
const page = ${'`'}<!doctype html><title>From the sandbox</title><p id="out"></p><p id="stolen"></p><script>
const socket = new WebSocket(new URL('socket', location.href.replace(/^http/, 'ws')))
socket.onopen = () => socket.send('hello')
socket.onmessage = ({ data }) => { document.querySelector('#out').textContent = data }
const attempt = (name, what) => Promise.resolve().then(what).then((found) => name + ' ' + found, () => name + ' refused')
const server = new URLSearchParams(location.search).get('server')
Promise.all([
  attempt('api', () => fetch(server + '/v1/sandboxes', { credentials: 'include' }).then((response) => response.text())),
  attempt('cookie', () => document.cookie === '' ? 'none' : document.cookie),
  attempt('parent', () => parent === window ? 'none' : parent.document.title),
  attempt('own', () => fetch('data').then((response) => response.text())),
]).then((all) => { document.querySelector('#stolen').textContent = all.join(', ') })
</script>${'`'}
const server = require('node:http').createServer((request, response) => {
  if (request.url === '/data') return response.end('data of the program')
  response.setHeader('content-type', 'text/html').end(page)
})
server.on('upgrade', (request, socket) => {
  const accept = createHash('sha1').update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + accept + '\r\n\r\n')
  socket.on('error', () => socket.destroy()).once('data', (frame) => {
    // One masked frame of text with less than 126 bytes: https://www.rfc-editor.org/rfc/rfc6455#section-5.2
    const [mask, text] = [frame.subarray(2, 6), frame.subarray(6)]
    const answer = Buffer.from('echo of ' + Buffer.from(text.map((byte, at) => byte ^ mask[at % 4])))
    socket.write(Buffer.concat([Buffer.from([0x81, answer.length]), answer]))
  })
})
server.listen(8000, '127.0.0.1')
`

describe.skipIf(chromiumPath === undefined)('a web server in a sandbox', () => {
  const place = new Place()
  let server: Glovebox
  let browser: Browser
  let key: OwnKey
  let port: number

  beforeAll(async () => {
    port = await freePort()
    // Browsers resolve names below localhost to loopback.
    const config = join(place.directory, 'glovebox.yaml')
    writeFileSync(config, `preview_domain: preview.localhost:${port}\n`)
    server = await place.start('--no-dev', '--config', config, '--port', `${port}`)
    key = await newKey(place, '--org', 'acme')
    const ask = (path: string, body: object) => post(`${server.url}/v1/sandboxes${path}`, body, key.headers)
    expect((await ask('', { name: 'web' })).status).toBe(201)
    await ask('/web/processes', { command: 'node', args: ['--eval', page] })
    browser = await openBrowser()
  }, 120_000)
  afterAll(async () => {
    await browser?.close()
    await place.remove()
  })

  const tool = async (given: object): Promise<string> => {
    const params = { name: 'sandbox_ports', arguments: { sandbox: 'web', ...given } }
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params }
    const { body } = await post<{ result?: { content: { text: string }[] }; error?: { message: string } }>(
      `${server.url}/mcp?toolsets=sandbox`,
      call,
      key.headers,
    )
    return body.result?.content[0]?.text ?? body.error?.message ?? ''
  }
  const command = async (...words: string[]) => {
    const env = { PATH: process.env.PATH ?? '', GLOVEBOX_URL: server.url, GLOVEBOX_KEY: key.secret }
    const child = spawn(program, ['sandbox', ...words], { stdio: ['ignore', 'pipe', 'pipe'], env })
    const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
    return { code: code as number, stdout, stderr }
  }

  /** Opens an address as a user does, who has no key. */
  async function open(address: string): Promise<Page> {
    const page = await (await browser.newContext()).newPage()
    await page.goto(address)
    await page.goto(`${page.url()}?server=${encodeURIComponent(server.url)}`)
    await page.locator('#out').getByText('echo of hello').waitFor()
    return page
  }
  const stolen = (page: Page) => page.locator('#stolen').getByText('own').textContent()

  it('is seen at the address that a tool returns, with a WebSocket, and reaches nothing of this server', async () => {
    const published = await tool({ action: 'publish', port: 8000 })
    const [address = ''] = /http:\S+/.exec(published) ?? []
    expect(new URL(address).host).toMatch(/^8000-[0-9a-f]{48}\.preview\.localhost:/)
    const page = await open(address)
    expect(await page.title()).toBe('From the sandbox')
    expect(await stolen(page)).toBe('api refused, cookie none, parent none, own data of the program')
    expect(await tool({ action: 'list' })).toContain('Port 8000 (key, until ')
    // Without the signed link nothing is shown.
    const response = await (await (await browser.newContext()).newPage()).goto(new URL('/', address).href)
    expect(response?.status()).toBe(401)
  })

  it('is seen below a path of this server, and has no origin there', async () => {
    const { stdout } = await command('open', 'web', '8000')
    const { hostname, searchParams } = new URL(stdout.trim())
    const label = /-([0-9a-f]{48})\./.exec(hostname)?.[1]
    const page = await open(`${server.url}/preview/${label}~${searchParams.get('glovebox_grant')}/`)
    expect(await stolen(page)).toBe('api refused, cookie refused, parent none, own data of the program')
    expect(await page.evaluate('origin')).toBe('null')
  })

  it('is listed and withdrawn with a command or the tool, which ends its address', async () => {
    const { stdout: address } = await command('open', 'web', '8000', '--public', '--expires', '600')
    const listed = JSON.parse((await command('ports', 'web', '--json')).stdout)
    expect(listed).toMatchObject([{ port: 8000, access: 'public', open_url: address.trim() }])
    expect((await command('ports', 'web')).stdout).toContain(address.trim())
    expect(await command('close', 'web', '8000')).toMatchObject({ code: 0, stdout: 'Port 8000 is withdrawn.\n' })
    const page = await (await browser.newContext()).newPage()
    expect((await page.goto(address.trim()))?.status()).toBe(404)
    expect(await command('close', 'web', '8000')).toMatchObject({
      code: 70,
      stderr: expect.stringContaining('not published'),
    })
    expect((await command('open', 'web', 'http')).stderr).toContain('the port must be a number')
    expect(await tool({ action: 'withdraw', port: 8000 })).toContain('not published')
    expect(await tool({ action: 'publish' })).toContain('port')
    await tool({ action: 'publish', port: 8000 })
    expect(await tool({ action: 'withdraw', port: 8000 })).toBe('Port 8000 is withdrawn.\nNo port is published.')
    expect(await tool({ action: 'list' })).toBe('No port is published.')
  })
})
