import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Agent, fetch } from 'undici'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { unpackDebian } from '../support/debian-packages.ts'
import { freePort, until } from '../support/glovebox.ts'
import { openStory } from '../support/story.ts'

const deploy = join(import.meta.dirname, '../../deploy')
const story = openStory(['--trusted-proxies', '127.0.0.1', '--limit-thread', '256MiB', '--storage-reserve', '0'])

/** What a proxy needs, with its certificate made by itself or by openssl. */
interface Sample {
  package: string
  /** Replaces what differs on the machine of an operator. @returns the command that starts the proxy. */
  prepare(directory: string, port: number, root: string): string[]
}

const textOf = (path: string, ...replaced: readonly [from: string, to: string][]): string => {
  let text = readFileSync(join(deploy, path), 'utf8')
  for (const [from, to] of replaced) {
    if (!text.includes(from)) throw new Error(`${path} does not contain ${from}`)
    text = text.replaceAll(from, to)
  }
  return text
}
const upstream = (): [string, string] => ['127.0.0.1:5555', `127.0.0.1:${story.server.port}`]

const samples: Record<string, Sample> = {
  Caddy: {
    package: 'caddy',
    prepare(directory, port, root) {
      const text = textOf('caddy/Caddyfile', upstream(), ['code.example {', `localhost:${port} {\n\ttls internal`])
      const options = `{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n`
      writeFileSync(join(directory, 'Caddyfile'), options + text)
      return [join(root, 'usr/bin/caddy'), 'run', '--config', join(directory, 'Caddyfile')]
    },
  },
  nginx: {
    package: 'nginx',
    prepare(directory, port, root) {
      const key = join(directory, 'privkey.pem')
      const certificate = join(directory, 'fullchain.pem')
      const made = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2']
      execFileSync('openssl', [...made, '-subj', '/CN=localhost', '-keyout', key, '-out', certificate], {
        stdio: 'ignore',
      })
      const paths: [string, string][] = [
        ['/etc/glovebox/fullchain.pem', certificate],
        ['/etc/glovebox/privkey.pem', key],
      ]
      const text = textOf('nginx/glovebox.conf', upstream(), ['listen 443', `listen 127.0.0.1:${port}`], ...paths)
      const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
        (name) => `${name}_temp_path ${directory}/${name};`,
      )
      const start = `daemon off; pid ${directory}/pid; user root; events {}\n`
      writeFileSync(
        join(directory, 'nginx.conf'),
        `${start}http {\naccess_log off;\n${temporary.join('\n')}\n${text.replace('code.example', 'localhost')}\n}\n`,
      )
      return [join(root, 'usr/sbin/nginx'), '-e', 'stderr', '-p', directory, '-c', join(directory, 'nginx.conf')]
    },
  },
}

const roots = new Map<string, string | undefined>()
for (const sample of Object.values(samples)) roots.set(sample.package, await unpackDebian(sample.package))

describe.each(Object.entries(samples))('behind %s, with the sample in deploy/', (_, sample) => {
  const root = roots.get(sample.package)
  describe.skipIf(root === undefined)('the server', () => {
    const directory = mkdtempSync(join(tmpdir(), 'glovebox-proxy-'))
    const dispatcher = new Agent({ connect: { rejectUnauthorized: false } })
    let proxy: ChildProcess
    let url: string

    beforeAll(async () => {
      const port = await freePort()
      url = `https://localhost:${port}`
      chmodSync(directory, 0o700)
      mkdirSync(join(directory, 'data'))
      const [program, ...words] = sample.prepare(directory, port, root!)
      const env = { PATH: process.env.PATH, HOME: directory, XDG_DATA_HOME: join(directory, 'data') }
      proxy = spawn(program!, words, { stdio: ['ignore', 'ignore', 'pipe'], env })
      let said = ''
      proxy.stderr!.on('data', (text: Buffer) => (said += text))
      await until(async () => {
        if (proxy.exitCode !== null) throw new Error(said)
        return fetch(`${url}/readyz`, { dispatcher }).then(
          ({ ok }) => ok,
          () => false,
        )
      }, 'the proxy answers')
    })
    afterAll(async () => {
      await dispatcher.close()
      proxy.kill('SIGTERM')
      if (proxy.exitCode === null) await once(proxy, 'exit')
      rmSync(directory, { recursive: true })
    })

    const send = (path: string, body: object, headers: Record<string, string> = {}) =>
      fetch(`${url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
        dispatcher,
      })
    const linkOf = async (operation: 'upload' | 'download', more: object = {}): Promise<string> => {
      const file = { source: 'thread', id: `proxy-${sample.package}`, path: 'large', ...more }
      return ((await (await send(`/v1/files/${operation}`, file)).json()) as { url: string }).url
    }

    it('makes links to its address, and transfers 100 MB through them', async () => {
      const bytes = Buffer.alloc(100_000_000, 'glovebox')
      const upload = await linkOf('upload', { size: bytes.length })
      expect(upload.startsWith(`${url}/v1/blobs/`)).toBe(true)
      expect((await fetch(upload, { method: 'PUT', body: bytes, dispatcher })).status).toBe(200)
      const download = await fetch(await linkOf('download'), { dispatcher })
      const digest = createHash('sha256')
      for await (const chunk of download.body!) digest.update(chunk)
      expect(digest.digest('hex')).toBe(createHash('sha256').update(bytes).digest('hex'))
    })

    it('streams lines of output while a run goes on', async () => {
      const run = { language: 'bash', code: 'echo early; exec sleep 300', timeout: 300 }
      const response = await send('/v1/sandbox/execute', run, { accept: 'application/x-ndjson' })
      let text = ''
      for await (const chunk of response.body!) {
        text += Buffer.from(chunk).toString()
        if (text.includes('early')) break
      }
      expect(text).toContain('early')
      expect(text).not.toContain('"ending"')
    })

    it('streams events of a call over MCP', async () => {
      const call = { name: 'sandbox_execute', arguments: { language: 'bash', code: 'echo early; exec sleep 25' } }
      const message = {
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: { ...call, _meta: { progressToken: 't' } },
      }
      const response = await send('/mcp', message, { accept: 'application/json, text/event-stream' })
      expect(response.headers.get('content-type')).toContain('text/event-stream')
      let text = ''
      for await (const chunk of response.body!) {
        text += Buffer.from(chunk).toString()
        if (text.includes('early')) break
      }
      expect(text).toContain('notifications/progress')
      expect(text).not.toContain('"result"')
    })

    it('ignores forwarding headers that a client invents', async () => {
      const invented = {
        'x-forwarded-proto': 'http',
        'x-forwarded-host': 'evil.example',
        'x-forwarded-for': '203.0.113.9',
      }
      const file = { source: 'thread', id: `proxy-${sample.package}`, path: 'other', size: 1 }
      const answer = (await (await send('/v1/files/upload', file, invented)).json()) as { url: string }
      expect(answer.url.startsWith(`${url}/v1/blobs/`)).toBe(true)
    })
  })
})
