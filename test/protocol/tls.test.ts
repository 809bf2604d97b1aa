import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { connect as connectPlain } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { TlsServer } from '../../src/http/tls.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

const directory = mkdtempSync(join(tmpdir(), 'glovebox-tls-'))
const files = { certificate: join(directory, 'certificate.pem'), key: join(directory, 'key.pem') }
let front: Front

beforeAll(async () => {
  writePair('first.example')
  front = await openFront(threadsProfile, { tls: files })
})
afterAll(async () => {
  await front?.close()
  rmSync(directory, { recursive: true })
})

/** Replaces both files, each by renaming, as programs that renew certificates do. */
function writePair(name: string): void {
  const [key, certificate] = [join(directory, 'new.key'), join(directory, 'new.pem')]
  execFileSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'],
      ...['-subj', `/CN=${name}`, '-addext', `subjectAltName=DNS:${name},IP:127.0.0.1`],
      ...['-keyout', key, '-out', certificate],
    ],
    { stdio: 'pipe' },
  )
  renameSync(key, files.key)
  renameSync(certificate, files.certificate)
}

interface Answer {
  status: number | undefined
  body: string
}

function call(path: string, body?: object, ca = readFileSync(files.certificate)): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        ...{ host: '127.0.0.1', port: front.port, path, ca, method: body ? 'POST' : 'GET' },
        headers: body ? { 'content-type': 'application/json' } : {},
      },
      (response) => {
        let text = ''
        response.on('data', (chunk) => (text += chunk))
        response.on('end', () => resolve({ status: response.statusCode, body: text }))
      },
    )
    sent.on('error', reject)
    sent.end(body && JSON.stringify(body))
  })
}

const servedName = (port: number): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false }, () => {
      resolve(String(socket.getPeerCertificate().subject.CN))
      socket.destroy()
    })
    socket.on('error', reject)
  })

describe('a server with tls_certificate', () => {
  it('serves clients that verify the certificate', async () => {
    const answer = await call('/v1/sandbox/execute', { language: 'bash', code: 'echo over TLS' })
    expect([answer.status, JSON.parse(answer.body).stdout]).toEqual([200, 'over TLS\n'])
  })

  it('gives links with https', async () => {
    const file = { source: 'thread', id: 'links', path: 'a.txt', size: 2 }
    const { body } = await call('/v1/files/upload', file)
    expect(JSON.parse(body).url).toMatch(new RegExp(`^https://127\\.0\\.0\\.1:${front.port}/v1/blobs/`))
  })

  it('counts and closes its connections', async () => {
    await call('/healthz')
    const { connections } = front.metrics.front?.() ?? {}
    expect(connections).toBeGreaterThan(0)
    await vi.waitFor(() => expect(front.metrics.front?.().connections).toBe(0), 10_000)
  })

  it('does not answer plain HTTP', async () => {
    const socket = connectPlain(front.port, '127.0.0.1')
    socket.write('GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n')
    let received = ''
    for await (const chunk of socket) received += chunk
    expect(received).not.toContain('HTTP/1.1 200')
  })

  it('does not start with files that do not belong together', async () => {
    const other = join(directory, 'other.pem')
    writeFileSync(other, readFileSync(files.certificate))
    writePair('first.example')
    expect(() => new TlsServer({ certificate: other, key: files.key }, front.log)).toThrow(
      /^The TLS certificate cannot be used: .*key values mismatch/,
    )
    expect(() => new TlsServer({ certificate: join(directory, 'none'), key: files.key }, front.log)).toThrow('ENOENT')
  })
})

describe('a replaced certificate', () => {
  it('is used without a restart, and an unusable one is not', async () => {
    const tls = new TlsServer(files, front.log, 20)
    const server = tls.create({}, (_request, response) => response.end()).listen(0, '127.0.0.1')
    await vi.waitFor(() => expect(server.listening).toBe(true))
    const { port } = server.address() as { port: number }
    try {
      expect(await servedName(port)).toBe('first.example')
      writePair('second.example')
      await vi.waitFor(async () => expect(await servedName(port)).toBe('second.example'), 10_000)
      writeFileSync(files.certificate, 'not a certificate')
      const reported = () => front.lines.filter((line) => line.includes('the new TLS certificate cannot be used'))
      await vi.waitFor(() => expect(reported()).toHaveLength(1), 10_000)
      expect(await servedName(port)).toBe('second.example')
    } finally {
      tls.stop()
      server.close()
    }
  })
})
