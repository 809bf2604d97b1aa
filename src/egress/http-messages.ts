import { finalStatusOf, type ReadStatusLine } from '../base/status-line.ts'

/** Headers that concern one connection: https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1 */
const ofConnection = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization', 'te', 'trailer'],
  'upgrade',
])

/** The headers of a message without those of its connection, and without Host. */
export function passedOn(raw: readonly string[]): string[] {
  const named = new Set(ofConnection)
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]!.toLowerCase() === 'connection')
      for (const name of raw[i + 1]!.split(',')) named.add(name.trim().toLowerCase())
  }
  const kept: string[] = []
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase()
    if (name !== 'host' && !named.has(name)) kept.push(raw[i]!, raw[i + 1]!)
  }
  return kept
}

export function headOf(line: string, headers: readonly string[]): Buffer {
  const lines = [line]
  for (let i = 0; i < headers.length; i += 2) lines.push(`${headers[i]}: ${headers[i + 1]}`)
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1')
}

/** Returns what can be passed on of a status line. @throws Error for one that no server may write. */
export function statusOf(answer: ReadStatusLine): { status: number; reason: string } {
  const line = finalStatusOf(answer)
  if (line === undefined) throw new Error('HTTP has no such status')
  return line
}
