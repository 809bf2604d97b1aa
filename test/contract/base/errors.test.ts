import { describe, expect, it } from 'vitest'
import { Refusal, type RefusalCode, refusals } from '../../../src/base/errors.ts'
import { refusalKinds } from '../../../src/base/refusal-kinds.ts'

const rows = Object.entries(refusals) as [RefusalCode, (typeof refusals)[RefusalCode]][]

describe('every refusal', () => {
  it('has a 4xx or 5xx status, and a 5xx can be retried', () => {
    for (const [code, row] of rows) {
      expect([code, row.http >= 400 && row.http < 600]).toEqual([code, true])
      if (row.http >= 500) expect([code, row.retry]).toEqual([code, 'later'])
    }
  })

  it('has a JSON-RPC code from the range for protocol and server errors', () => {
    for (const [code, row] of rows) expect([code, row.rpc <= -32000 && row.rpc >= -32768]).toEqual([code, true])
  })

  it('belongs to a kind that no other kind duplicates', () => {
    const columns = Object.values(refusalKinds).map((kind) => JSON.stringify(kind))
    expect(new Set(columns).size).toBe(columns.length)
    expect(new Set(rows.map(([, row]) => row.kind))).toEqual(new Set(Object.keys(refusalKinds)))
  })

  it('states what is wrong and what to do in complete sentences', () => {
    for (const [code, row] of rows) {
      expect([code, row.message.length > 10, /[.!]$/.test(row.hint)]).toEqual([code, true, true])
    }
  })
})

describe('a refusal', () => {
  it('replaces the placeholders in its message and hint', () => {
    const refusal = new Refusal('queue_full', { running: 4, waiting: 2, retryAfterSeconds: 7 })
    expect(refusal.message).toBe('All slots are busy (4 running) and the queue is full (2 waiting).')
    expect(refusal.hint).toBe('Retry in 7 s.')
    expect(refusal.row.http).toBe(503)
  })

  it('joins lists with commas', () => {
    const refusal = new Refusal('language_unavailable', { language: 'ruby', offered: ['python', 'bash'] })
    expect(refusal.message).toContain('python, bash')
  })

  it('does not expand placeholders inside details', () => {
    const refusal = new Refusal('language_unavailable', { language: '{offered} $& $1', offered: ['bash'] })
    expect(refusal.message).toContain("'{offered} $& $1'")
  })
})
