import { describe, expect, it } from 'vitest'
import { AuthFailureLimiter } from '../../../src/http/auth-failure-limiter.ts'

describe('failures of one address', () => {
  it('are answered three times in a minute, and then rejected with a retry delay', () => {
    const failures = new AuthFailureLimiter()
    expect([0, 1_000, 2_000].map((nowMs) => failures.count('a', nowMs))).toEqual([0, 0, 0])
    expect(failures.count('a', 3_000)).toBe(57)
    expect(failures.count('b', 3_000)).toBe(0)
  })

  it('are answered again after the retry delay, and not before', () => {
    const failures = new AuthFailureLimiter()
    for (const nowMs of [0, 10_000, 20_000]) failures.count('a', nowMs)
    const seconds = failures.count('a', 20_500)
    expect(failures.count('a', 20_500 + (seconds - 1) * 1000)).toBeGreaterThan(0)
    expect(failures.count('a', 20_500 + seconds * 1000)).toBe(0)
    expect(failures.count('a', 20_501 + seconds * 1000)).toBeGreaterThan(0)
  })

  it('do not push the wait further out', () => {
    const failures = new AuthFailureLimiter()
    for (let nowMs = 0; nowMs < 59_000; nowMs += 500) failures.count('a', nowMs)
    expect(failures.count('a', 60_001)).toBe(0)
  })
})

describe('the table of failures', () => {
  it('forgets addresses whose minute is over', () => {
    const failures = new AuthFailureLimiter()
    for (let number = 0; number < 100; number++) failures.count(`old ${number}`, 0)
    failures.count('new', 60_001)
    expect(failures.size).toBe(1)
  })

  it('holds no more than ten thousand, the latest', () => {
    const failures = new AuthFailureLimiter()
    for (let number = 0; number < 3; number++) failures.count('busy', 0)
    for (let number = 0; number < 10_100; number++) failures.count(`${number}`, 1)
    expect(failures.size).toBe(10_000)
    for (let count = 0; count < 2; count++) expect(failures.count('10099', 2)).toBe(0)
    expect(failures.count('10099', 2)).toBe(60)
    expect(failures.count('0', 2)).toBe(0)
  })
})
