import { randomBytes } from 'node:crypto'

const prefixes = {
  run: 'trc',
  request: 'req',
  fault: 'flt',
  slot: 'slt',
  runner: 'rnr',
  org: 'org',
  key: 'key',
} as const

/** An unguessable public id, 120 random bits: `trc_…` for a run, and so on. */
export function newId(kind: keyof typeof prefixes): string {
  return `${prefixes[kind]}_${randomBytes(15).toString('base64url')}`
}
