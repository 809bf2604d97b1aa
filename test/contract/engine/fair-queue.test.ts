import { describe, expect, it } from 'vitest'
import { Refusal } from '../../../src/base/errors.ts'
import { FairQueue, type Place } from '../../../src/engine/slots/queue.ts'

const never = new AbortController().signal
const settings = { places: 2, placesPerOrg: 2, waitingPerOrg: 3, waitMs: 60_000 }

/** Lets all settled promises run their callbacks. */
const tick = () => new Promise((resolve) => setImmediate(resolve))

describe('the run queue', () => {
  it('grants places immediately while some are free', async () => {
    const queue = new FairQueue(settings)
    await queue.enter('a', never)
    await queue.enter('a', never)
    expect(queue.running).toBe(2)
  })

  it('rejects immediately when it is full, with a retry delay', async () => {
    const queue = new FairQueue(settings)
    for (let count = 0; count < 2; count++) await queue.enter('a', never)
    for (let count = 0; count < 3; count++) void queue.enter('a', never)
    const refused = await queue.enter('a', never).catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(Refusal)
    expect((refused as Refusal).code).toBe('queue_full')
    expect((refused as Refusal).details.retryAfterSeconds).toBeGreaterThan(0)
  })

  it('accepts another organization while one has filled its own queue', async () => {
    const queue = new FairQueue(settings)
    for (let count = 0; count < 2; count++) await queue.enter('a', never)
    for (let count = 0; count < 3; count++) void queue.enter('a', never)
    void queue.enter('b', never)
    expect(queue.waiting).toBe(4)
  })

  it('grants the next place to the organization with the fewest running runs', async () => {
    const queue = new FairQueue(settings)
    const order: string[] = []
    const first = await queue.enter('heavy', never)
    await queue.enter('heavy', never)
    for (const org of ['heavy', 'heavy', 'light']) {
      void queue.enter(org, never).then(() => order.push(org))
    }
    first.release()
    await tick()
    expect(order).toEqual(['light'])
  })

  it('keeps reserved places for organizations that have none', async () => {
    const queue = new FairQueue({ ...settings, places: 6, placesPerOrg: 3, reserved: 2 })
    const held = await Promise.all(['a', 'a', 'a', 'b'].map((org) => queue.enter(org, never)))
    const granted: string[] = []
    for (const org of ['b', 'c', 'c', 'd']) void queue.enter(org, never).then(() => granted.push(org))
    await tick()
    expect(granted).toEqual(['c', 'd'])
    held[0]!.release()
    held[1]!.release()
    await tick()
    expect(granted).toEqual(['c', 'd'])
    held[2]!.release()
    await tick()
    expect(granted).toEqual(['c', 'd', 'b'])
  })

  it('keeps a place for each organization that ran something recently, and all for one that is alone', async () => {
    const queue = new FairQueue({ ...settings, places: 4, placesPerOrg: 4, waitingPerOrg: 9, keptForRecent: 2 })
    const alone = await Promise.all([1, 2, 3, 4].map(() => queue.enter('busy', never)))
    expect([queue.running, queue.waiting]).toEqual([4, 0])
    for (const place of alone) place.release()
    for (const org of ['b', 'c', 'd']) (await queue.enter(org, never)).release()
    for (let count = 0; count < 4; count++) void queue.enter('busy', never)
    await tick()
    // Three were here, for whom two places are kept.
    expect([queue.running, queue.waiting]).toEqual([2, 2])
    const [b, c] = await Promise.all(['b', 'c'].map((org) => queue.enter(org, never)))
    expect([queue.running, queue.waiting]).toEqual([4, 2])
    b!.release()
    c!.release()
    await tick()
    expect([queue.running, queue.waiting]).toEqual([2, 2])
  })

  it('keeps the order of arrival within an organization', async () => {
    const queue = new FairQueue({ ...settings, places: 1 })
    const order: number[] = []
    let place: Place = await queue.enter('a', never)
    const waits = [1, 2, 3].map((number) =>
      queue.enter('a', never).then((granted) => {
        order.push(number)
        place = granted
      }),
    )
    for (const wait of waits) {
      place.release()
      await wait
    }
    expect(order).toEqual([1, 2, 3])
  })

  it('releases a place once, however often it is released', async () => {
    const queue = new FairQueue(settings)
    const place = await queue.enter('a', never)
    await queue.enter('a', never)
    place.release()
    place.release()
    expect(queue.running).toBe(1)
  })

  it('drops an entry that stops waiting', async () => {
    const queue = new FairQueue({ ...settings, places: 1 })
    const place = await queue.enter('a', never)
    const impatient = new AbortController()
    const wait = queue.enter('a', impatient.signal)
    impatient.abort(new Error('gone'))
    await expect(wait).rejects.toThrow('gone')
    place.release()
    expect([queue.running, queue.waiting]).toEqual([0, 0])
  })

  it('rejects after the maximum wait', async () => {
    const queue = new FairQueue({ ...settings, places: 1, waitMs: 20 })
    await queue.enter('a', never)
    await expect(queue.enter('a', never)).rejects.toMatchObject({ code: 'queue_timeout' })
    expect(queue.waiting).toBe(0)
  })
})

describe('the limit of one organization', () => {
  const own = { ...settings, places: 4, placesPerOrg: 1 }

  it('is below the total: its next run waits for a place of its own, and other organizations do not', async () => {
    const queue = new FairQueue(own)
    const first = await queue.enter('a', never)
    let second: Place | undefined
    void queue.enter('a', never).then((place) => (second = place))
    const other = await queue.enter('b', never)
    expect([queue.running, queue.waiting]).toEqual([2, 1])
    other.release()
    await tick()
    expect(second).toBeUndefined()
    first.release()
    await tick()
    expect(second).toBeDefined()
  })

  it('is counted in the refusal of a full queue', async () => {
    const queue = new FairQueue({ ...own, waitingPerOrg: 0 })
    await queue.enter('a', never)
    await queue.enter('b', never)
    const refused = await queue.enter('a', never).catch((error: unknown) => error)
    expect((refused as Refusal).details).toMatchObject({ running: 1, waiting: 0 })
  })
})
