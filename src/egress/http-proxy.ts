import {
  type ClientRequest,
  createServer,
  type IncomingMessage,
  type OutgoingMessage,
  request as requestOf,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { plainName } from '../base/network.ts'
import { joinSmallPieces } from '../base/small-pieces.ts'
import { limitInformation } from '../base/status-line.ts'
import { NetworkRefused, type RequestLine, type Target } from './decision.ts'
import { headOf, passedOn, statusOf } from './http-messages.ts'
import type { EgressJail } from './jail.ts'
import { joinMasked, passOnMasked, refuseUpgradeMasked } from './masked-exchange.ts'
import { pump } from './pump.ts'
import type { FilledRequest } from './secrets/jail-secrets.ts'
import { askReadable, maskedHead } from './secrets/masked-answer.ts'
import { openTls } from './secrets/opened-tls.ts'
import { servePackages } from './serve-packages.ts'
import { tunnel } from './tunnel.ts'

const maxHeaderSize = 64 * 1024
/** Where the requests of a connection go. */
interface Fixed {
  target: Target
  /** Whether they came within TLS, and go on within it. */
  isTls: boolean
}

/** A request that may be sent. */
interface Allowed extends Fixed {
  line: RequestLine
  /** Names and values in turn. */
  headers: string[]
}

const handshake = 22

/** A proxy for HTTP/1 and for tunnels (CONNECT), for the connections of one jail. */
export class HttpProxy {
  readonly #jail: EgressJail
  readonly #server: Server
  /** Destinations of connections that carry requests without a destination of their own. */
  readonly #fixed = new WeakMap<Duplex, Fixed>()

  constructor(jail: EgressJail) {
    this.#jail = jail
    this.#server = createServer({ maxHeaderSize, keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 0 })
    this.#server.on('request', (request, response) => void this.#forward(request, response))
    this.#server.on('checkContinue', (request, response) => void this.#forward(request, response))
    this.#server.on('connect', (request, socket, head) => void this.#connect(request, socket as Socket, head))
    this.#server.on('upgrade', (request, socket, head) => void this.#upgrade(request, socket as Socket, head))
    this.#server.on('clientError', (_error, socket) => {
      if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n')
    })
  }

  /** Takes a connection that speaks HTTP. @param target where its requests go; absent: where each of them says. */
  take(socket: Socket, fixed?: Fixed): void {
    if (fixed !== undefined) this.#fixed.set(socket, fixed)
    this.#server.emit('connection', socket)
    socket.resume()
  }

  /** Takes a connection to one destination whose requests must be read, within TLS or without it. */
  takeFor(socket: Socket, target: Target): void {
    if (!this.#jail.secrets.opens(target)) {
      this.take(socket, { target, isTls: false })
      return
    }
    const ended = () => socket.end()
    socket.once('end', ended)
    socket.once('data', (first: Buffer) => {
      socket.off('end', ended)
      socket.pause()
      socket.unshift(first)
      if (first[0] === handshake) void this.#takeTls(socket, target)
      else this.take(socket, { target, isTls: false })
    })
    socket.resume()
  }

  async #takeTls(socket: Socket, target: Target): Promise<void> {
    this.#jail.hasOpened(socket, target)
    try {
      const opened = await openTls(socket, target, await this.#jail.leaves())
      if (opened !== undefined) this.take(opened, { target, isTls: true })
    } catch (error) {
      if (error instanceof NetworkRefused) this.#jail.refuse(target, error)
      socket.destroy()
    }
  }

  async #connect(request: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    const target = authorityOf(request.url ?? '')
    if (target === undefined || this.#fixed.has(socket)) {
      socket.end(textAnswer(400, 'Bad Request', 'CONNECT takes host:port\n'))
      return
    }
    const established = 'HTTP/1.1 200 Connection established\r\n\r\n'
    if (head.length > 0) socket.unshift(head)
    try {
      if (this.#jail.readsRequests(target)) {
        socket.write(established)
        this.takeFor(socket, target)
        return
      }
      const outside = await this.#jail.connect(target)
      if (socket.destroyed) return void outside.socket.destroy()
      socket.write(established)
      tunnel(this.#jail, socket, outside, target, (inside, to) => this.takeFor(inside, to))
    } catch (error) {
      const { status, reason, text } = problemOf(error)
      socket.end(textAnswer(status, reason, text))
    }
  }

  async #forward(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.sendDate = false
    joinSmallPieces(request)
    try {
      const allowed = this.#destinationOf(request)
      this.#jail.requireRequest(allowed.target, allowed.line)
      const packages = allowed.isTls ? undefined : this.#jail.packagesAt(allowed.target)
      if (packages) await servePackages(this.#jail, packages, request, response, allowed)
      else await this.#exchange(request, response, allowed)
    } catch (error) {
      this.#answerProblem(response, error)
    }
  }

  /** @throws NetworkRefused. */
  #destinationOf(request: IncomingMessage): Allowed {
    const fixed = this.#fixed.get(request.socket)
    const written = request.url ?? ''
    const url = /^http:\/\//i.test(written) && URL.canParse(written) ? new URL(written) : undefined
    const target = url === undefined ? fixed?.target : targetOf(url)
    const path = url === undefined ? written : `${url.pathname}${url.search}`
    if (target === undefined || !path.startsWith('/') || (url !== undefined && fixed !== undefined)) {
      throw new RequestProblem('this proxy takes http addresses and CONNECT')
    }
    const line = { method: request.method ?? '', path }
    const host = url?.host ?? request.headers.host ?? ''
    if (url === undefined && hostOf(host) !== plainName(target.host)) {
      const refused = new NetworkRefused('refused_name', `the request is for another host than ${target.host}`)
      this.#jail.refuse(target, refused)
      throw refused
    }
    return { target, isTls: fixed?.isTls === true, line, headers: ['Host', host, ...passedOn(request.rawHeaders)] }
  }

  #exchange(
    request: IncomingMessage,
    response: ServerResponse,
    { target, isTls, line, headers }: Allowed,
  ): Promise<void> {
    const { secrets } = this.#jail
    const filled = this.#jail.fill({ target, isTls, path: line.path, headers })
    const isMasked = filled.echoes.length > 0
    return new Promise((resolve, reject) => {
      const use = this.#jail.useOf(target)
      const count = (bytes: number) => this.#jail.count(use, bytes, false)
      const countSent = (bytes: number) => this.#jail.count(use, bytes, true)
      // What it throws rejects.
      countSent(bytesOf([line.method, filled.path, ...filled.headers]))
      const sent = this.#send(
        { target, isTls, line, headers: isMasked ? askReadable(filled.headers) : filled.headers },
        filled.path,
      )
      let isRefused = false
      const refuse = (error: unknown) => {
        isRefused = true
        sent.destroy()
        if (!response.headersSent) response.setHeader('connection', 'close')
        reject(error)
      }
      sent.on('response', (answer) => {
        answer.on('close', resolve)
        if (isRefused) return void answer.destroy()
        joinSmallPieces(answer)
        answer.on('error', () => response.destroy())
        try {
          count(bytesOf(answer.rawHeaders))
          if (isMasked) return passOnMasked(answer, response, filled.echoes, line.method === 'HEAD', count)
          const { status, reason } = statusOf(answer)
          response.writeHead(status, reason, passedOn(answer.rawHeaders))
        } catch (error) {
          return refuse(error)
        }
        pump(answer, withTrailers(response, answer), count)
      })
      sent.on('continue', () => response.writeContinue())
      const fail = (error: Error) => {
        if (isRefused) return
        if (response.headersSent) response.destroy()
        reject(error)
      }
      sent.on('error', fail)
      // Without an error: Node ends a connection whose server changes a protocol without being asked to.
      sent.on('close', () => response.headersSent || fail(new Error('there was no answer')))
      response.on('close', () => {
        if (!response.writableFinished) sent.destroy()
      })
      // The body follows when the server requests it.
      if (request.headers.expect !== undefined) sent.flushHeaders()
      if (secrets.isEmpty) return pump(request, sent, countSent)
      const finder = secrets.finder()
      const countFinding = (bytes: number, piece: Buffer) => {
        if (!finder.find(piece)) return countSent(bytes)
        const refused = this.#jail.secretRefusal(target, 'in the body of a request')
        this.#jail.refuse(target, refused)
        throw refused
      }
      pump(request, sent, countFinding, (error) => {
        request.resume()
        refuse(error)
      })
    })
  }

  /** @param path with its secrets, which must not become part of an error. */
  #send({ target, isTls, line, headers }: Allowed, path: string): ClientRequest {
    const agent = isTls ? this.#jail.tlsAgent : this.#jail.agent
    const options = { host: target.host, port: target.port, agent, method: line.method, path, headers, maxHeaderSize }
    const sent = requestOf({ ...options, setHost: false, requestLine: line } as object)
    limitInformation(sent)
    return sent
  }

  /** A protocol that begins as a request, such as WebSocket: from then on it is a tunnel. */
  async #upgrade(request: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    try {
      const { target, isTls, line, headers } = this.#destinationOf(request)
      const filled = this.#jail.fill({ target, isTls, path: line.path, headers })
      const upgrade = ['Connection', 'Upgrade', 'Upgrade', request.headers.upgrade ?? '']
      if (filled.echoes.length > 0 || isTls) {
        this.#jail.requireRequest(target, line)
        const asked = { target, isTls, line, headers: [...askReadable(filled.headers), ...upgrade] }
        return await this.#upgradeMasked(socket, head, asked, filled)
      }
      const outside = await this.#jail.connect(target, line)
      if (socket.destroyed) return void outside.socket.destroy()
      const first = Buffer.concat([
        headOf(`${line.method} ${line.path} HTTP/1.1`, [...filled.headers, ...upgrade]),
        head,
      ])
      this.#jail.listen(outside, socket)
      this.#jail.relay(socket, outside, first)
    } catch (error) {
      const { status, reason, text } = problemOf(error)
      socket.end(textAnswer(status, reason, text))
    }
  }

  #upgradeMasked(socket: Socket, head: Buffer, asked: Allowed, { path, echoes }: FilledRequest): Promise<void> {
    return new Promise((resolve, reject) => {
      const sent = this.#send(asked, path)
      const use = this.#jail.useOf(asked.target)
      sent.on('upgrade', (answer, outside, rest) => {
        const { statusMessage, headers } = maskedHead(answer.statusMessage ?? '', answer.rawHeaders, echoes, false)
        if (rest.length > 0) outside.unshift(rest)
        if (head.length > 0) socket.unshift(head)
        socket.write(headOf(`HTTP/1.1 ${answer.statusCode ?? 101} ${statusMessage}`, headers))
        joinMasked(this.#jail, socket, outside as Socket, asked.target, echoes)
        resolve()
      })
      sent.on('response', (answer) => {
        try {
          refuseUpgradeMasked(answer, socket, echoes, (bytes) => this.#jail.count(use, bytes, false))
          resolve()
        } catch (error) {
          reject(error)
        }
      })
      sent.on('error', reject)
      sent.on('close', () => reject(new Error('there was no answer')))
      socket.once('close', () => sent.destroy())
      sent.end()
    })
  }

  #answerProblem(response: ServerResponse, error: unknown): void {
    if (response.headersSent || response.destroyed) return void response.destroy()
    const { status, reason, text } = problemOf(error)
    response.writeHead(status, reason, { 'content-type': 'text/plain; charset=utf-8', 'proxy-status': proxyStatus })
    response.end(text)
  }
}

/** Says which of the servers on the way answered: https://www.rfc-editor.org/rfc/rfc9209 */
const proxyStatus = 'glovebox; error=destination_ip_prohibited'

/** A request that no proxy serves. */
class RequestProblem extends Error {}

/** The reason is part of the status line, since many clients print nothing else of a refused tunnel. */
function problemOf(error: unknown): { status: number; reason: string; text: string } {
  if (error instanceof RequestProblem) return { status: 400, reason: 'Bad Request', text: `${error.message}\n` }
  if (!(error instanceof NetworkRefused)) {
    return { status: 502, reason: 'Bad Gateway', text: 'the server closed the connection or sent no HTTP\n' }
  }
  const status = error.verdict === 'unresolved' || error.verdict === 'unreachable' ? 502 : 403
  return { status, reason: `Refused by ${error.message}`.slice(0, 300), text: `${error.message}\n` }
}

const textAnswer = (status: number, reason: string, text: string): string =>
  `HTTP/1.1 ${status} ${reason}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(text)}\r\nproxy-status: ${proxyStatus}\r\nconnection: close\r\n\r\n${text}`

function authorityOf(text: string): Target | undefined {
  const match = /^(?:\[(?<six>[0-9a-fA-F:.]+)\]|(?<host>[^\s:/@[\]]+)):(?<port>\d{1,5})$/.exec(text)
  const port = Number(match?.groups?.port)
  const host = match?.groups?.six ?? match?.groups?.host
  return host === undefined || port < 1 || port > 65_535 ? undefined : { host, port }
}

const targetOf = (url: URL): Target => ({
  host: url.hostname.replace(/^\[(.*)\]$/, '$1'),
  port: Number(url.port || 80),
})

/** The name in a Host header, without its port. */
const hostOf = (header: string): string => plainName(header.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1'))

/** Adds the trailers of an answer to a response when it ends. */
function withTrailers(response: ServerResponse, answer: IncomingMessage): OutgoingMessage {
  answer.prependListener('end', () => {
    if (Object.keys(answer.trailers).length > 0) response.addTrailers(answer.trailers as Record<string, string>)
  })
  return response
}

const bytesOf = (texts: readonly string[]): number => texts.reduce((sum, text) => sum + text.length, 0)
