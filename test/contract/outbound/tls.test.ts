import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { getCACertificates, setDefaultCACertificates, type TLSSocket } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { AllowedDestinations } from '../../../src/outbound/destination.ts'
import { Outbound } from '../../../src/outbound/outbound.ts'

const directory = mkdtempSync(join(tmpdir(), 'glovebox-tls-'))
const usual = getCACertificates()
const seen: unknown[] = []
let server: Server
let port: number

beforeAll(async () => {
  const [key, certificate] = [join(directory, 'key'), join(directory, 'certificate')]
  execFileSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=receiver.example'],
      ...['-addext', 'subjectAltName=DNS:receiver.example', '-keyout', key, '-out', certificate],
    ],
    { stdio: 'pipe' },
  )
  setDefaultCACertificates([...usual, readFileSync(certificate, 'utf8')])
  server = createServer({ key: readFileSync(key), cert: readFileSync(certificate) }, (request, response) => {
    seen.push([(request.socket as TLSSocket).servername, request.headers.host])
    response.end()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  port = (server.address() as AddressInfo).port
})
afterAll(() => {
  setDefaultCACertificates(usual)
  server.closeAllConnections()
  server.close()
  rmSync(directory, { recursive: true })
})

const outbound = new Outbound(new AllowedDestinations(['127.0.0.1']), async () => ['127.0.0.1'])
const post = (url: string) =>
  outbound.post({ url, headers: {}, body: '{}', timeoutMs: 20_000, signal: new AbortController().signal })

describe('an outgoing request over TLS', () => {
  it('connects to the address that was checked and verifies the original host name', async () => {
    expect(await post(`https://receiver.example:${port}/`)).toBe(200)
    expect(seen).toEqual([['receiver.example', `receiver.example:${port}`]])
  })

  it('sends nothing to a server that cannot prove that name', async () => {
    await expect(post(`https://other.example:${port}/`)).rejects.toMatchObject({ code: 'ERR_TLS_CERT_ALTNAME_INVALID' })
    await expect(post(`https://127.0.0.1:${port}/`)).rejects.toMatchObject({ code: 'ERR_TLS_CERT_ALTNAME_INVALID' })
    expect(seen).toHaveLength(1)
  })
})
