import type { FastifyReply } from 'fastify'
import type { Capability } from '../../../base/capabilities.ts'
import { Refusal } from '../../../base/errors.ts'
import { fault, type Log } from '../../../observe/log.ts'
import { errorLine, startWriting } from '../../answer.ts'
import type { ServerContext } from '../../operation.ts'

/** Converts seconds of a request to milliseconds. */
export const ms = (seconds: number | undefined): number | undefined =>
  seconds === undefined ? undefined : seconds * 1_000

/** Returns the number of a process in a path; NaN for anything else. */
export const toNumber = (text: string): number => (/^\d{1,15}$/.test(text) ? Number(text) : Number.NaN)

/** Returns a number of a query, 0 by default. @throws Refusal invalid_argument. */
export function numberIn(query: Readonly<Record<string, string>>, field: string): number {
  const number = toNumber(query[field] || '0')
  if (!Number.isNaN(number)) return number
  throw new Refusal('invalid_argument', { field, problem: 'must be a whole number' })
}

/** Returns a parameter that is true or false. @throws Refusal invalid_argument. */
export function flag(query: Readonly<Record<string, string>>, field: string): boolean {
  const value = query[field]
  if (value === undefined || value === 'false') return false
  if (value === 'true' || value === '') return true
  throw new Refusal('invalid_argument', { field, problem: 'must be true or false' })
}

/** Returns permission bits, which are written in octal. @throws Refusal invalid_argument. */
export function modeOf(mode: string | undefined): number | undefined {
  if (mode === undefined) return undefined
  if (/^[0-7]{1,5}$/.test(mode)) return Number.parseInt(mode, 8)
  throw new Refusal('invalid_argument', { field: 'mode', problem: 'must be permission bits in octal, such as 0644' })
}

/** Returns the path that a query names; the working directory by default. */
export const pathOf = ({ path = '.', user }: Readonly<Record<string, string>>) => ({
  path,
  ...(user !== undefined && { user }),
})

/** Returns a signal that aborts when the client disconnects. */
export function gone(reply: FastifyReply): AbortSignal {
  const closed = new AbortController()
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) closed.abort()
  })
  return closed.signal
}

/** Ends a request that lasts when its key loses a capability. */
export function keepRequiring(
  { request }: FastifyReply,
  { core }: Pick<ServerContext, 'core'>,
  capability: Capability,
) {
  request.open?.require((now) => core.requireCapability(now, capability))
}

/**
 * Sends items as lines of JSON, one at a time as fast as the client reads. A failure becomes the last line.
 * @param toLines returns zero or more lines for an item.
 */
export async function sendAsLines<Item>(
  reply: FastifyReply,
  items: AsyncGenerator<Item, void, undefined>,
  toLines: (item: Item) => string,
): Promise<undefined> {
  reply.code(200).header('content-type', 'application/x-ndjson').header('x-accel-buffering', 'no')
  const writer = startWriting(reply).keepAlive('{"type":"heartbeat"}\n')
  reply.raw.flushHeaders()
  try {
    for await (const item of items) {
      await writer.write(toLines(item))
      if (writer.gone) return
    }
  } catch (error) {
    const isExpected = error instanceof Refusal
    const faultId = isExpected ? '' : fault(error, reply.request.log as Log)
    await writer.write(errorLine(isExpected ? error : new Refusal('fault', { faultId })))
  } finally {
    writer.end()
  }
}
