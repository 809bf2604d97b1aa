import { type IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Refusal } from '../../base/errors.ts'
import type { Core } from '../../core/core.ts'
import { grantParameter } from '../../core/sandboxes/ports/address.ts'
import type { Admission } from '../../core/sandboxes/ports/connections.ts'
import type { Preview } from '../../core/sandboxes/ports/previews.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { PreviewMetrics } from '../../observe/preview-metrics.ts'
import type { Authentication } from '../authenticate.ts'
import type { Connections } from '../connections.ts'
import type { ReadForwarded } from '../forwarded.ts'
import type { requestGuard } from '../request-guard.ts'
import type { Turns } from '../requests-in-turn.ts'
import { grantCookie, grantsIn, pathHeaders, requestHeaders } from './headers.ts'
import { type Place, placeOf } from './place.ts'
import { type Relayed, relay, relayUpgrade } from './relay.ts'
import { StalledClients } from './stalled.ts'

export interface PreviewDeps {
  core: Pick<Core, 'previews'>
  /** Below which previews have host names; empty for none. */
  domain: string
  authenticate: Authentication['caller']
  guard: ReturnType<typeof requestGuard>
  forwarded: ReadForwarded
  connections: Connections
  turns: Turns
  metrics: Pick<PreviewMetrics, 'request'>
  log: Log
}

/**
 * Serves published ports of sandboxes. These requests never reach the routes of this server, whatever their method and
 * headers are, and what they bring from a sandbox never has the origin of this server.
 */
export class PreviewServer {
  readonly #deps: PreviewDeps
  readonly #stalled = new StalledClients()

  constructor(deps: PreviewDeps) {
    this.#deps = deps
  }

  stop(): void {
    this.#stalled.stop()
  }

  /** @returns where a request leads, or `undefined` for one that is not for a preview. */
  placeOf(request: IncomingMessage): Place | undefined {
    return placeOf(request, this.#deps.domain)
  }

  handle(request: IncomingMessage, response: ServerResponse, place: Place): void {
    const { connections } = this.#deps
    const full = connections.begin(request, response, true)
    response.once('close', () => connections.end(request))
    // Refused after what was sent has arrived in part.
    request.on('error', () => undefined)
    const refuse = this.#refusing((refusal) => answerRefusal(response, place, refusal))
    if (full) {
      refuse(full)
      return
    }
    if (isPreflight(request, place)) {
      answerPreflight(request, response)
      return
    }
    this.#serve(request, place, false, response)
      .then((relayed) => {
        if (relayed === undefined || response.destroyed) return void relayed?.connection.destroy()
        this.#stalled.watch(request.socket, relayed.orgId)
        relay(relayed, response, refuse)
      })
      .catch(this.#failed(refuse))
  }

  upgrade(request: IncomingMessage, socket: Socket, head: Buffer, place: Place): void {
    socket.setTimeout(0)
    socket.on('error', () => socket.destroy())
    this.#deps.connections.upgraded(socket)
    const respondAs = () => {
      const response = new ServerResponse(request)
      response.shouldKeepAlive = false
      response.assignSocket(socket)
      response.once('finish', () => socket.destroySoon())
      return response
    }
    const refuse = this.#refusing((refusal) => answerRefusal(respondAs(), place, refusal))
    this.#serve(request, place, true)
      .then((relayed) => {
        if (relayed === undefined || socket.destroyed) return void relayed?.connection.destroy()
        this.#stalled.watch(socket, relayed.orgId)
        relayUpgrade(relayed, { socket, head, respondAs }, refuse)
      })
      .catch(this.#failed(refuse))
  }

  /** @returns nothing where the response was written already. @throws Refusal. */
  async #serve(
    request: IncomingMessage,
    place: Place,
    isUpgrade: boolean,
    response?: ServerResponse,
  ): Promise<Relayed | undefined> {
    this.#check(request, place)
    const { core, forwarded, turns } = this.#deps
    const preview = await core.previews.find(place.label)
    await turns.turnOf(preview.orgId)
    if (place.port !== undefined && place.port !== preview.port) throw new Refusal('preview_invalid')
    if (response && (await this.#redirects(request, response, place, preview))) return undefined
    const admission = await this.#admit(request, place, preview)
    const { port } = preview
    const how = { port, isUpgrade, isForKeys: preview.access === 'key' }
    const headers = requestHeaders(request.rawHeaders, place, forwarded(request), how)
    const connection = await core.previews.connect(preview, admission)
    this.#deps.metrics.request('relayed')
    return { request, place, orgId: preview.orgId, port, headers, connection }
  }

  #refusing(answer: (refusal: Refusal) => void): (refusal: Refusal) => void {
    return (refusal) => {
      this.#deps.metrics.request(refusal.code)
      answer(refusal)
    }
  }

  /** BOUNDARY: what would be ambiguous, or could give a page power over the origin of this server. */
  #check({ headers, rawHeaders, url = '' }: IncomingMessage, { form }: Place): void {
    const { host } = headers
    const refusal = this.#deps.guard({
      headers: form === 'path' && host ? { host } : { host: 'localhost' },
      rawHeaders,
    })
    if (refusal) throw refusal
    if (!url.startsWith('/')) throw new Refusal('invalid_request', { problem: 'the address must be a path' })
    if (form === 'path' && headers['service-worker'] !== undefined)
      throw new Refusal('invalid_request', { problem: 'a service worker needs an origin of its own' })
  }

  /** Adds the slash that relative links need, and turns a signed link into a cookie of its origin. */
  async #redirects(
    request: IncomingMessage,
    response: ServerResponse,
    { form, prefix, target }: Place,
    preview: Preview,
  ): Promise<boolean> {
    if (form === 'path') {
      if (target.startsWith('/')) return false
      const { prefix: outer } = this.#deps.forwarded(request)
      response.writeHead(308, [...pathHeaders, 'Location', `${outer}${prefix}/${target}`, 'Content-Length', '0']).end()
      return true
    }
    const [path = '', query = ''] = target.split('?', 2)
    const parameters = query.split('&')
    const found = parameters.find((one) => one.startsWith(`${grantParameter}=`))
    const grant = found?.slice(grantParameter.length + 1)
    if (grant === undefined || !(await this.#deps.core.previews.admissionBy(preview, grant))) return false
    const rest = parameters.filter((one) => one !== found).join('&')
    const secure = this.#deps.forwarded(request).protocol === 'https' ? '; Secure' : ''
    response
      .writeHead(303, {
        Location: `/${path.replace(/^[/\\]+/, '')}${rest === '' ? '' : `?${rest}`}`,
        'Set-Cookie': `${grantCookie}=${grant}; Path=/; HttpOnly; SameSite=Lax${secure}`,
        'Cache-Control': 'no-store',
        'Referrer-Policy': 'no-referrer',
        'Content-Length': 0,
      })
      .end()
    return true
  }

  /** @throws Refusal preview_denied, too_many_failures. */
  async #admit(request: IncomingMessage, { form, grant }: Place, preview: Preview): Promise<Admission> {
    if (preview.access === 'public') return { kind: 'public' }
    const { core, authenticate } = this.#deps
    const given = form === 'path' ? (grant === undefined ? [] : [grant]) : grantsIn(request.headers.cookie)
    for (const one of given) {
      const granted = await core.previews.admissionBy(preview, one)
      if (granted !== undefined) return granted
    }
    try {
      const { headers, socket } = request
      const admission = core.previews.admissionOf(preview, await authenticate({ headers, socket, raw: request }))
      if (admission !== undefined) return admission
    } catch (error) {
      if (!(error instanceof Refusal) || error.code === 'too_many_failures') throw error
    }
    throw new Refusal('preview_denied')
  }

  #failed(refuse: (refusal: Refusal) => void): (error: unknown) => void {
    return (error) =>
      refuse(error instanceof Refusal ? error : new Refusal('fault', { faultId: fault(error, this.#deps.log) }))
  }
}

/** A page without an origin asks before most of its own requests. */
const isPreflight = ({ method, headers }: IncomingMessage, { form }: Place): boolean =>
  form === 'path' && method === 'OPTIONS' && headers['access-control-request-method'] !== undefined

function answerPreflight({ headers }: IncomingMessage, response: ServerResponse): void {
  const named = headers['access-control-request-headers']
  response.writeHead(204, [
    ...[...pathHeaders, 'Access-Control-Allow-Methods', headers['access-control-request-method'] ?? ''],
    ...(typeof named === 'string' ? ['Access-Control-Allow-Headers', named] : []),
    ...['Access-Control-Max-Age', '600', 'Vary', 'Access-Control-Request-Method, Access-Control-Request-Headers'],
  ])
  response.end()
}

function answerRefusal(response: ServerResponse, place: Place, refusal: Refusal): void {
  if (response.headersSent || response.destroyed) return void response.destroy()
  const text = `${refusal.message}\n`
  response.writeHead(refusal.row.http, [
    ...(place.form === 'path' ? pathHeaders : []),
    ...['Content-Type', 'text/plain; charset=utf-8', 'Cache-Control', 'no-store'],
    ...['Content-Length', String(Buffer.byteLength(text))],
  ])
  response.end(text)
}
