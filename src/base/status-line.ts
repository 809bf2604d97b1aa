import type { ClientRequest } from 'node:http'

/** What Node refuses to write into a status line, and reads in one. */
const unwritable = /[^\t\x20-\x7e\x80-\xff]/g

/** A status line as another server wrote it, as far as Node could read it. */
export interface ReadStatusLine {
  statusCode?: number | undefined
  statusMessage?: string | undefined
}

/**
 * BOUNDARY: reads the status line of a final response. Node accepts lines that it throws at when they are written, and a
 * listener that throws ends the process.
 * @returns what can be passed on; `undefined` for a status that no final response has: one that no number of three digits
 * is, or 101 without a change of the protocol.
 */
export function finalStatusOf(line: ReadStatusLine): { status: number; reason: string } | undefined {
  const { statusCode = 0, statusMessage = '' } = line
  if (statusCode < 200 || statusCode > 999) return undefined
  return { status: statusCode, reason: statusMessage.replace(unwritable, ' ') }
}

/** A server that sends hints sends a few. */
const informationMax = 64

/** BOUNDARY: ends a request whose server sends informational responses without end. Node reads each as a whole message. */
export function limitInformation(sent: ClientRequest): void {
  let left = informationMax
  sent.on('information', () => {
    left -= 1
    if (left < 0) sent.destroy(new Error('the server sends informational responses without end'))
  })
}
