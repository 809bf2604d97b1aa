import { isIP, type Socket } from 'node:net'
import { NetworkRefused, type Target } from './decision.ts'
import type { EgressJail } from './jail.ts'
import { tunnel } from './tunnel.ts'

/** https://www.rfc-editor.org/rfc/rfc1928 */
const version = 5
const noAuthentication = 0
const noMethod = 0xff
const commandConnect = 1
const replies = { ok: 0, failed: 1, notAllowed: 2, hostUnreachable: 4, command: 7, address: 8 } as const
const longestRequestBytes = 262

/** Serves a connection that speaks SOCKS 5. Names are resolved outside of the jail. */
export function takeSocks(jail: EgressJail, socket: Socket, asHttp: (inside: Socket, target: Target) => void): void {
  let state: 'greeting' | 'request' = 'greeting'
  let bytes = Buffer.alloc(0)
  const leave = () => socket.off('data', read)
  const reply = (code: number) => Buffer.from([version, code, 0, 1, 0, 0, 0, 0, 0, 0])
  const read = (piece: Buffer) => {
    bytes = Buffer.concat([bytes, piece])
    if (state === 'greeting') {
      const greeting = greetingIn(bytes)
      if (greeting === undefined) return
      const isPossible = greeting.methods.includes(noAuthentication)
      const answer = Buffer.from([version, isPossible ? noAuthentication : noMethod])
      if (!isPossible) return void socket.end(answer)
      socket.write(answer)
      bytes = bytes.subarray(greeting.length)
      state = 'request'
    }
    const asked = requestIn(bytes)
    if (asked === undefined && bytes.length <= longestRequestBytes) return
    leave()
    socket.pause()
    if (asked === undefined || 'problem' in asked) return void socket.end(reply(asked?.problem ?? replies.failed))
    if (bytes.length > asked.length) socket.unshift(bytes.subarray(asked.length))
    void connect(asked.target)
  }
  const connect = async (target: Target) => {
    try {
      if (jail.readsRequests(target)) {
        socket.write(reply(replies.ok))
        return asHttp(socket, target)
      }
      const outside = await jail.connect(target)
      if (socket.destroyed) return void outside.socket.destroy()
      socket.write(reply(replies.ok))
      tunnel(jail, socket, outside, target, asHttp)
    } catch (error) {
      socket.end(reply(codeOf(error)))
    }
  }
  socket.on('data', read)
  socket.resume()
}

function codeOf(error: unknown): number {
  if (!(error instanceof NetworkRefused)) return replies.failed
  return error.verdict === 'unresolved' || error.verdict === 'unreachable'
    ? replies.hostUnreachable
    : replies.notAllowed
}

function greetingIn(bytes: Buffer): { methods: Buffer; length: number } | undefined {
  const length = 2 + (bytes[1] ?? Number.POSITIVE_INFINITY)
  return bytes.length < length ? undefined : { methods: bytes.subarray(2, length), length }
}

function requestIn(bytes: Buffer): { target: Target; length: number } | { problem: number } | undefined {
  if (bytes.length < 5) return undefined
  if (bytes[1] !== commandConnect) return { problem: replies.command }
  const [start, size] = bytes[3] === 1 ? [4, 4] : bytes[3] === 4 ? [4, 16] : bytes[3] === 3 ? [5, bytes[4]!] : [0, 0]
  if (start === 0) return { problem: replies.address }
  const length = start + size + 2
  if (bytes.length < length) return undefined
  const address = bytes.subarray(start, start + size)
  const host = bytes[3] === 3 ? address.toString('latin1') : textOf(address)
  return { target: { host, port: bytes.readUInt16BE(start + size) }, length }
}

function textOf(address: Buffer): string {
  if (address.length === 4) return [...address].join('.')
  const groups = Array.from({ length: 8 }, (_, i) => address.readUInt16BE(i * 2).toString(16)).join(':')
  return isIP(groups) === 6 ? groups : ''
}
