import { isIP, type Socket } from 'node:net'
import { plainName } from '../base/network.ts'
import { helloMaxBytes, readClientHello } from './client-hello.ts'
import { NetworkRefused, type Target, where } from './decision.ts'
import type { EgressJail, Outside } from './jail.ts'

/** A request of HTTP/1: no protocol in which the server speaks first begins so. */
const requestPattern = /^(?:GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS|TRACE) /
const longestMethod = 8
/** alert(21), TLS 1.2, fatal, access_denied: https://www.rfc-editor.org/rfc/rfc8446#section-6 */
const accessDenied = Buffer.from([21, 3, 3, 0, 2, 2, 49])

/**
 * Joins a connection of a program and one to a server, when the first bytes of the program show no other destination than
 * the one that was decided on. What the server sends is passed on at once, since it may speak first.
 * @param asHttp takes over a connection that carries requests of plain HTTP, each of which must be looked at.
 */
export function tunnel(
  jail: EgressJail,
  inside: Socket,
  outside: Outside,
  target: Target,
  asHttp: (inside: Socket, target: Target) => void,
): void {
  const part = jail.listen(outside, inside)
  let first: Buffer = Buffer.alloc(0)
  const onEnd = () => join()
  const join = () => {
    inside.off('data', look)
    inside.off('end', onEnd)
    inside.pause()
    jail.relay(inside, outside, first)
    // It ended before it was joined.
    if (inside.readableEnded) outside.socket.end()
  }
  const refuse = (message: string) => {
    inside.off('data', look)
    jail.refuse(target, new NetworkRefused('refused_name', message))
    part()
    outside.socket.destroy()
    inside.end(accessDenied, () => inside.destroy())
  }
  const look = (piece: Buffer) => {
    first = first.length === 0 ? piece : Buffer.concat([first, piece])
    switch (lookAt(jail, first, target)) {
      case 'more':
        return
      case 'join':
        return join()
      case 'http':
        inside.off('data', look)
        inside.off('end', onEnd)
        inside.pause()
        inside.unshift(first)
        part()
        outside.socket.destroy()
        inside.removeAllListeners('drain')
        return asHttp(inside, target)
      case 'other_name':
        return refuse(`the name in the connection is not ${where(target.host, target.port)}`)
      case 'encrypted_name':
        return refuse('the name in the connection is encrypted (ECH)')
    }
  }
  inside.on('data', look)
  inside.on('end', onEnd)
  inside.resume()
}

type Seen = 'more' | 'join' | 'http' | 'other_name' | 'encrypted_name'

/** BOUNDARY: what the first bytes of a program show. */
function lookAt({ decision, secrets }: EgressJail, first: Buffer, { host }: Target): Seen {
  const hasName = decision.dependsOnNames && isIP(host) === 0
  // With secrets, each request of plain HTTP is looked at.
  if (!hasName && secrets.isEmpty) return 'join'
  const hello = readClientHello(first)
  switch (hello.kind) {
    case 'incomplete':
      return first.length < helloMaxBytes ? 'more' : hasName ? 'other_name' : 'join'
    case 'malformed':
      return hasName ? 'other_name' : 'join'
    case 'hello':
      if (!hasName) return 'join'
      if (hello.isEncrypted) return 'encrypted_name'
      return hello.serverName !== undefined && plainName(hello.serverName) === plainName(host) ? 'join' : 'other_name'
    case 'not_tls':
      if (requestPattern.test(first.toString('latin1', 0, longestMethod))) return 'http'
      return isBeginning(first) ? 'more' : 'join'
  }
}

/** Whether more bytes could make it a request. */
const isBeginning = (first: Buffer): boolean =>
  first.length < longestMethod && /^[A-Z]+$/.test(first.toString('latin1'))
