import { describe, expect, it } from 'vitest'
import { Refusal, type RefusalCode, refusals } from '../../../src/base/errors.ts'

const rows = Object.entries(refusals) as [RefusalCode, (typeof refusals)[RefusalCode]][]

describe('every refusal', () => {
  it('has a status that says whose turn it is: 4xx never retried, 5xx later', () => {
    for (const [code, row] of rows) {
      expect([code, row.http >= 400 && row.http < 600]).toEqual([code, true])
      if (row.http >= 500) expect([code, row.retry]).toEqual([code, 'later'])
    }
  })

  it('has a JSON-RPC code that the protocol leaves to it', () => {
    for (const [code, row] of rows) expect([code, row.rpc <= -32000 && row.rpc >= -32768]).toEqual([code, true])
  })

  it('says what is wrong and what to do, as sentences', () => {
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

  it('writes lists as words', () => {
    const refusal = new Refusal('language_unavailable', { language: 'ruby', offered: ['python', 'bash'] })
    expect(refusal.message).toContain('python, bash')
  })

  it('takes details as they are: nothing in them is filled again', () => {
    const refusal = new Refusal('language_unavailable', { language: '{offered} $& $1', offered: ['bash'] })
    expect(refusal.message).toContain("'{offered} $& $1'")
  })
})
