import { describe, expect, it } from 'vitest'
import { Credit } from '../../../src/base/credit.ts'

describe('a credit', () => {
  it('grants what it has, and the rest once it was added', async () => {
    const credit = new Credit(10)
    expect(await credit.spend(7)).toBe(true)
    const order: string[] = []
    const spent = credit.spend(8).then((isGranted) => order.push(`spent ${isGranted}`))
    credit.add(4)
    await new Promise(setImmediate)
    order.push('added 4')
    credit.add(1)
    await spent
    expect(order).toEqual(['added 4', 'spent true'])
    // Nothing is left: 10 + 4 + 1 - 7 - 8.
    const further = credit.spend(1)
    credit.close()
    expect(await further).toBe(false)
  })

  it('refuses a sender that waits, and every later one, when it is closed', async () => {
    const credit = new Credit(0)
    const waiting = credit.spend(1)
    credit.close()
    credit.add(5)
    expect([await waiting, await credit.spend(1)]).toEqual([false, false])
  })
})
