import { describe, expect, it } from 'vitest'
import { Refusal, type RefusalCode, refusals } from '../../../src/base/errors.ts'

const rows = Object.entries(refusals) as [RefusalCode, (typeof refusals)[RefusalCode]][]

describe('every refusal', () => {
  it('has a status that tells clients whether to retry: 4xx never, 5xx later', () => {
    for (const [code, row] of rows) {
      expect([code, row.http >= 400 && row.http < 600]).toEqual([code, true])
      if (row.http >= 500) expect([code, row.retry]).toEqual([code, 'later'])
    }
  })

  it('has a JSON-RPC code outside the range that the protocol reserves', () => {
    for (const [code, row] of rows) expect([code, row.rpc <= -32000 && row.rpc >= -32768]).toEqual([code, true])
  })

  it('has a message and a hint in full sentences', () => {
    for (const [code, row] of rows) {
      expect([code, row.message.length > 10, /[.!]$/.test(row.hint)]).toEqual([code, true, true])
    }
  })
})

describe('a refusal', () => {
  it('fills its message and hint with its details', () => {
    const refusal = new Refusal('queue_full', { running: 4, waiting: 2, retryAfterSeconds: 7 })
    expect(refusal.message).toBe('No place is free (4 running), and the queue is full (2 waiting).')
    expect(refusal.hint).toBe('Try again in 7 s.')
    expect(refusal.row.http).toBe(503)
  })

  it('formats lists as text', () => {
    const refusal = new Refusal('language_unavailable', { language: 'ruby', offered: ['python', 'bash'] })
    expect(refusal.message).toContain('python, bash')
  })

  it('inserts details literally: placeholders in them are not filled', () => {
    const refusal = new Refusal('language_unavailable', { language: '{offered} $& $1', offered: ['bash'] })
    expect(refusal.message).toContain("'{offered} $& $1'")
  })
})
