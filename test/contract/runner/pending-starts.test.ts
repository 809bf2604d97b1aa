import { describe, expect, it } from 'vitest'
import { PendingStarts } from '../../../src/runner/runs/pending-starts.ts'

describe('the memory of runs that wait', () => {
  it('is limited for each organization, which leaves room for others', () => {
    const pending = new PendingStarts(400)
    expect(pending.add('greedy', 60)).toBe(true)
    expect(pending.add('greedy', 60)).toBe(false)
    expect(pending.add('greedy', 40)).toBe(true)
    for (const other of ['b', 'c', 'd']) expect(pending.add(other, 100)).toBe(true)
    expect(pending.add('e', 1)).toBe(false)
    expect(pending.count).toBe(5)
    pending.remove('greedy', 60)
    expect(pending.add('e', 50)).toBe(true)
    expect(pending.add('greedy', 20)).toBe(false)
  })
})
