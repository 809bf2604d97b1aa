import { describe, expect, it } from 'vitest'
import { TransferPlaces } from '../../../src/core/storage/transfer-places.ts'

describe('the places of a key for files', () => {
  it('are given in the order of the requests, and released once', async () => {
    const places = new TransferPlaces(1)
    const release = await places.enter('a')
    const order: number[] = []
    const waiting = [1, 2].map(async (n) => {
      const leave = await places.enter('a')
      order.push(n)
      return leave
    })
    await (await places.enter('b'))()
    expect(order).toEqual([])
    release()
    release()
    const leaveFirst = await waiting[0]
    expect(order).toEqual([1])
    leaveFirst?.()
    ;(await waiting[1])?.()
    expect(order).toEqual([1, 2])
    ;(await places.enter('a'))()
  })

  it('are refused after a wait, and a request that gave up takes none', async () => {
    const places = new TransferPlaces(1, 1)
    const release = await places.enter('a')
    await expect(places.enter('a')).rejects.toMatchObject({ code: 'transfers_full', details: { limit: 1 } })
    release()
    ;(await places.enter('a'))()
  })
})
