import { randomFillSync } from 'node:crypto'

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
  front: 'frt',
  session: 'ses',
  event: 'evt',
} as const

const idBytes = 15

/** Drawn for many ids at once: asking the system for 15 bytes costs a hundred times more than copying them. */
const pool = Buffer.alloc(256 * idBytes)
let used = pool.length

/** An unguessable public id, 120 random bits: `trc_…` for a run, and so on. */
export function newId(kind: keyof typeof prefixes): string {
  if (used === pool.length) {
    randomFillSync(pool)
    used = 0
  }
  used += idBytes
  return `${prefixes[kind]}_${pool.toString('base64url', used - idBytes, used)}`
}
