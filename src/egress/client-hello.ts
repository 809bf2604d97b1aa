/** What the first message of TLS shows of its destination (https://www.rfc-editor.org/rfc/rfc8446#section-4.1.2). */
export type ClientHello =
  /** More bytes are needed. */
  | { kind: 'incomplete' }
  | { kind: 'not_tls' }
  /** A record of TLS that is not a whole first message. */
  | { kind: 'malformed' }
  | { kind: 'hello'; serverName: string | undefined; isEncrypted: boolean }

/** A first message is longer only if somebody made it so. */
export const helloMaxBytes = 64 * 1024

const handshake = 22
const clientHello = 1
const extensionServerName = 0
/** https://www.rfc-editor.org/rfc/rfc9849 */
const extensionEncryptedHello = 0xfe0d

/** BOUNDARY: reads the first bytes of a connection. */
export function readClientHello(bytes: Buffer): ClientHello {
  if (bytes[0] !== handshake || (bytes.length > 1 && bytes[1] !== 3)) return { kind: 'not_tls' }
  const message = messageIn(bytes)
  if (message === undefined) return { kind: bytes.length < helloMaxBytes ? 'incomplete' : 'malformed' }
  if (message === 'malformed') return { kind: 'malformed' }
  try {
    return helloOf(message)
  } catch {
    return { kind: 'malformed' } // A length that points outside of the message.
  }
}

/** Joins the records that carry the first message. */
function messageIn(bytes: Buffer): Buffer | 'malformed' | undefined {
  const parts: Buffer[] = []
  let have = 0
  for (let at = 0; at + 5 <= bytes.length; ) {
    const length = bytes.readUInt16BE(at + 3)
    if (bytes[at] !== handshake || length === 0) return 'malformed'
    const part = bytes.subarray(at + 5, at + 5 + length)
    parts.push(part)
    have += part.length
    at += 5 + length
    if (have < 4) continue
    const message = Buffer.concat(parts)
    if (message[0] !== clientHello) return 'malformed'
    const needed = 4 + message.readUIntBE(1, 3)
    if (needed > helloMaxBytes) return 'malformed'
    if (have >= needed) return message.subarray(4, needed)
  }
  return undefined
}

function helloOf(message: Buffer): ClientHello {
  let at = 34 // version and random
  at += 1 + message.readUInt8(at) // session
  at += 2 + message.readUInt16BE(at) // cipher suites
  at += 1 + message.readUInt8(at) // compression
  let serverName: string | undefined
  let isEncrypted = false
  if (at === message.length) return { kind: 'hello', serverName, isEncrypted }
  const end = at + 2 + message.readUInt16BE(at)
  if (end !== message.length) return { kind: 'malformed' }
  for (at += 2; at < end; ) {
    const type = message.readUInt16BE(at)
    const length = message.readUInt16BE(at + 2)
    const content = message.subarray(at + 4, at + 4 + length)
    if (content.length !== length) return { kind: 'malformed' }
    if (type === extensionServerName) {
      if (serverName !== undefined) return { kind: 'malformed' }
      serverName = nameIn(content)
    }
    if (type === extensionEncryptedHello) isEncrypted = true
    at += 4 + length
  }
  return { kind: 'hello', serverName, isEncrypted }
}

/** The list holds one host name: https://www.rfc-editor.org/rfc/rfc6066#section-3 */
function nameIn(content: Buffer): string {
  const length = content.readUInt16BE(3)
  const isOne = content.readUInt16BE(0) === content.length - 2 && content[2] === 0 && length === content.length - 5
  if (!isOne) throw new RangeError('not one host name')
  return content.toString('latin1', 5)
}
