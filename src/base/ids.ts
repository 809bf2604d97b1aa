import { randomBytes, randomFillSync } from 'node:crypto'

const prefixes = {
  run: 'trc',
  request: 'req',
  fault: 'flt',
  slot: 'slt',
  runner: 'rnr',
  org: 'org',
  key: 'key',
  token: 'tok',
  task: 'tsk',
  volume: 'vol',
  image: 'img',
  upstream: 'ups',
  front: 'frt',
  session: 'ses',
  event: 'evt',
  context: 'ctx',
} as const

const idBytes = 15

/** Random bytes for many IDs: requesting 15 bytes from the system is a hundred times slower than copying them. */
const pool = Buffer.alloc(256 * idBytes)
let used = pool.length

/** Returns a new unguessable public ID with a prefix and 120 random bits, for example `trc_…` for a run. */
export function newId(kind: keyof typeof prefixes): string {
  if (used === pool.length) {
    randomFillSync(pool)
    used = 0
  }
  used += idBytes
  return `${prefixes[kind]}_${pool.toString('base64url', used - idBytes, used)}`
}

const sandboxIdPattern = /^sbx[0-9a-f]{32}$/

/** Returns a new unguessable ID of a sandbox. It is a valid label of a host name, since previews use it as one. */
export const newSandboxId = (): string => `sbx${randomBytes(16).toString('hex')}`

export const isSandboxId = (text: string): boolean => sandboxIdPattern.test(text)
