import { describe, expect, it } from 'vitest'
import { AsyncQueue, type QueueOptions } from '../../../src/base/async-queue.ts'

const queueOf = (options: Partial<QueueOptions<string>> = {}) => new AsyncQueue<string>({ capacity: 3, ...options })

async function readAll(queue: AsyncQueue<string>): Promise<string[]> {
  const items: string[] = []
  for await (const item of queue) items.push(item)
  return items
}

/** Whether a promise has settled once all pending callbacks have run. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false
  const done = () => {
    settled = true
  }
  promise.then(done, done)
  await new Promise((resolve) => setImmediate(resolve))
  return settled
}

describe('a queue', () => {
  it('yields items to its consumer in insertion order', async () => {
    const queue = queueOf()
    for (const item of ['a', 'b', 'c']) expect(queue.push(item)).toBe(true)
    queue.close()
    expect(await readAll(queue)).toEqual(['a', 'b', 'c'])
  })

  it('wakes a consumer that waits for an item', async () => {
    const queue = queueOf()
    const coming = queue.next()
    expect(await isSettled(coming)).toBe(false)
    queue.push('a')
    expect(await coming).toEqual({ value: 'a', done: false })
  })

  it('allows one pending read', () => {
    const queue = queueOf()
    void queue.next()
    expect(() => queue.next()).toThrow('one reader')
  })
})

describe('a full queue', () => {
  it('rejects an item and accepts it once there is room', async () => {
    const queue = queueOf({ capacity: 1 })
    expect([queue.push('a'), queue.push('b')]).toEqual([true, false])
    await queue.next()
    expect(queue.push('c')).toBe(true)
    queue.close()
    expect(await readAll(queue)).toEqual(['c'])
  })

  it('drops the oldest items when configured to', async () => {
    const queue = queueOf({ capacity: 2, overflow: 'drop_oldest' })
    for (const item of ['a', 'b', 'c', 'd']) expect(queue.push(item)).toBe(true)
    queue.close()
    expect(await readAll(queue)).toEqual(['c', 'd'])
  })

  it('measures items in the unit of its capacity', async () => {
    const queue = queueOf({ capacity: 4, sizeOf: (item) => item.length })
    expect([queue.push('abc'), queue.push('de'), queue.push('f')]).toEqual([true, false, true])
    expect(queue.push('')).toBe(true)
    queue.close()
    expect(await readAll(queue)).toEqual(['abc', 'f', ''])
  })

  it('keeps the queued items when an item exceeds the whole capacity', async () => {
    const queue = queueOf({ capacity: 2, overflow: 'drop_oldest', sizeOf: (item) => item.length })
    expect([queue.push('a'), queue.push('bcd')]).toEqual([true, false])
    queue.close()
    expect(await readAll(queue)).toEqual(['a'])
  })
})

describe('a producer that sends', () => {
  it('waits until its item is consumed', async () => {
    const queue = queueOf()
    const sent = queue.send('a')
    expect(await isSettled(sent)).toBe(false)
    expect(await queue.next()).toEqual({ value: 'a', done: false })
    expect(await sent).toBe(true)
  })

  it('does not wait while a consumer is reading', async () => {
    const queue = queueOf()
    const coming = queue.next()
    expect(await queue.send('a')).toBe(true)
    expect(await coming).toEqual({ value: 'a', done: false })
  })

  it('keeps its position among pushed items', async () => {
    const queue = queueOf()
    queue.push('a')
    const sent = queue.send('b')
    queue.push('c')
    await queue.next()
    expect(await isSettled(sent)).toBe(false)
    await queue.next()
    expect(await sent).toBe(true)
    expect(await queue.next()).toEqual({ value: 'c', done: false })
  })

  it('is notified when its item is dropped', async () => {
    const discarded = queueOf()
    const sent = discarded.send('a')
    discarded.discard()
    expect(await sent).toBe(false)
    const full = queueOf({ capacity: 1, overflow: 'drop_oldest' })
    const replaced = full.send('a')
    full.push('b')
    expect(await replaced).toBe(false)
  })
})

describe('a queue that has ended', () => {
  it('rejects items', async () => {
    const queue = queueOf()
    queue.close()
    expect(queue.push('a')).toBe(false)
    expect(await queue.send('b')).toBe(false)
    expect(await readAll(queue)).toEqual([])
  })

  it('ends a pending read', async () => {
    const queue = queueOf()
    const coming = queue.next()
    queue.close()
    expect(await coming).toEqual({ value: undefined, done: true })
    expect(await queue.next()).toEqual({ value: undefined, done: true })
  })

  it('throws its error once, after the queued items', async () => {
    const queue = queueOf()
    queue.push('a')
    queue.fail(new Error('broken'))
    expect(await queue.next()).toEqual({ value: 'a', done: false })
    await expect(queue.next()).rejects.toThrow('broken')
    expect(await queue.next()).toEqual({ value: undefined, done: true })
  })

  it('throws its error in a pending read', async () => {
    const queue = queueOf()
    const coming = queue.next()
    queue.fail(new Error('broken'))
    await expect(coming).rejects.toThrow('broken')
  })

  it('keeps its first ending', async () => {
    const queue = queueOf()
    queue.close()
    queue.fail(new Error('too late'))
    expect(await readAll(queue)).toEqual([])
  })

  it('drops the queued items when it is discarded', async () => {
    const queue = queueOf()
    queue.push('a')
    queue.fail(new Error('broken'))
    queue.discard()
    expect(await readAll(queue)).toEqual([])
  })
})

describe('a consumer', () => {
  it('reports each item that it consumes', async () => {
    const taken: string[] = []
    const queue = queueOf({ onTake: (item) => taken.push(item) })
    queue.push('a')
    expect(taken).toEqual([])
    await queue.next()
    const coming = queue.next()
    queue.push('b')
    expect(taken).toEqual(['a', 'b'])
    await coming
  })

  it('ends the queue when it stops early, and reports that once', async () => {
    let abandoned = 0
    const queue = queueOf({ onAbandon: () => abandoned++ })
    queue.push('a')
    queue.push('b')
    for await (const _ of queue) break
    await queue.return()
    expect([abandoned, queue.push('c')]).toEqual([1, false])
  })

  it('can stop while it waits for an item', async () => {
    let abandoned = 0
    const queue = queueOf({ onAbandon: () => abandoned++ })
    const coming = queue.next()
    await queue.return()
    expect(await coming).toEqual({ value: undefined, done: true })
    expect(abandoned).toBe(1)
  })

  it('does not report an early stop after reading to the end', async () => {
    let abandoned = 0
    const queue = queueOf({ onAbandon: () => abandoned++ })
    queue.close()
    for await (const _ of queue);
    await queue.return()
    expect(abandoned).toBe(0)
  })
})
