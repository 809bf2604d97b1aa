import type { EgressJail } from './jail.ts'

const headerBytes = 12
const typeA = 1
const classIn = 1
/** Names stay mapped as long as the run; short, so that a name whose address was forgotten is resolved again. */
const ttlSeconds = 60
const codes = { none: 0, format: 1, failed: 2, unknownName: 3, notImplemented: 4 } as const
type Code = (typeof codes)[keyof typeof codes]

interface Question {
  name: string
  type: number
  class: number
  /** Its bytes, for the answer. */
  bytes: Buffer
}

/**
 * BOUNDARY: answers one query of DNS. Only names that the policy allows, and that exist, have an address, and it leads back
 * to the broker, so nothing of a query goes anywhere unless its name may be connected to.
 * @returns undefined for what is no query.
 */
export async function answerQuery(jail: EgressJail, query: Buffer): Promise<Buffer | undefined> {
  if (query.length < headerBytes || (query[2]! & 0x80) !== 0) return undefined
  if ((query[2]! & 0x78) !== 0) return answer(query, codes.notImplemented)
  const question = questionIn(query)
  if (question === undefined) return answer(query, codes.format)
  if (!jail.allowsQuery(question.name)) return answer(query, codes.unknownName, question)
  try {
    await jail.resolve(question.name)
  } catch {
    return answer(query, codes.unknownName, question)
  }
  const isAddress = question.type === typeA && question.class === classIn
  return answer(query, codes.none, question, isAddress ? jail.names.addressOf(question.name) : undefined)
}

function questionIn(query: Buffer): Question | undefined {
  if (query.readUInt16BE(4) !== 1) return undefined
  const labels: string[] = []
  let at = headerBytes
  for (let length = query[at]; length !== 0; length = query[at]) {
    if (length === undefined || length > 63 || at + 1 + length >= query.length) return undefined
    labels.push(query.toString('latin1', at + 1, at + 1 + length))
    at += 1 + length
  }
  if (query.length < at + 5 || labels.length === 0) return undefined
  const name = labels.join('.').toLowerCase()
  const bytes = query.subarray(headerBytes, at + 5)
  return { name, type: query.readUInt16BE(at + 1), class: query.readUInt16BE(at + 3), bytes }
}

function answer(query: Buffer, code: Code, question?: Question, address?: string): Buffer {
  const header = Buffer.alloc(headerBytes)
  query.copy(header, 0, 0, 2)
  // A response with recursion, as the query wished it.
  header[2] = 0x80 | (query[2]! & 0x01)
  header[3] = 0x80 | code
  header.writeUInt16BE(question === undefined ? 0 : 1, 4)
  if (question === undefined) return header
  if (address === undefined) return Buffer.concat([header, question.bytes])
  header.writeUInt16BE(1, 6)
  const record = Buffer.from([0xc0, headerBytes, 0, typeA, 0, classIn, 0, 0, 0, ttlSeconds, 0, 4])
  return Buffer.concat([header, question.bytes, record, Buffer.from(address.split('.').map(Number))])
}
