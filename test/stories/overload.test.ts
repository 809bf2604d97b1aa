import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Execution, post } from '../support/calls.ts'
import { type Glovebox, Place, until } from '../support/glovebox.ts'
import { newKey, type OwnKey } from '../support/keys.ts'
import { slotsOf } from '../support/machine.ts'

const places = 2
const queue = 12

const place = new Place()
let server: Glovebox
let one: OwnKey
let two: OwnKey
beforeAll(async () => {
  server = await place.start('--no-dev', '--runs-max', `${places}`, '--queue-per-org', `${queue}`)
  one = await newKey(place, '--org', 'one', '--profile', 'default')
  two = await newKey(place, '--org', 'two', '--profile', 'default')
})
afterAll(async () => {
  await place.remove()
  expect(server.warnings).toEqual([])
})

type Called = Answer<Execution & { error?: string }>
const call = ({ headers }: OwnKey): Promise<Called> =>
  post(`${server.url}/v1/sandbox/execute`, { language: 'python', code: 'print(1)' }, headers)

/** @returns whether it was served. Anything but a result, or a refusal with a retry delay, fails the test. */
function expectHonest({ status, headers, body }: Called): boolean {
  if (status === 200) {
    expect(body).toMatchObject({ stdout: '1\n', exit_code: 0 })
    return true
  }
  expect([status, body.error]).toEqual([503, 'unavailable'])
  expect(Number(headers.get('retry-after'))).toBeGreaterThan(0)
  return false
}

/** Callers that retry sooner than the retry delay until they have had enough. */
async function insist(key: OwnKey, callers: number, isEnough: () => boolean, onServed: () => void): Promise<void> {
  const caller = async () => {
    while (!isEnough()) {
      if (expectHonest(await call(key))) onServed()
      else await sleep(20)
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
}

describe('an overloaded server', () => {
  it('answers a hundred simultaneous calls from idle with a result or a retry delay', async () => {
    const answers = await Promise.all(Array.from({ length: 100 }, () => call(one)))
    const served = answers.filter(expectHonest).length
    expect(served).toBeGreaterThanOrEqual(places + queue)
    const rows = place.runs()
    expect(rows).toHaveLength(served)
    expect(rows.filter(({ ending }) => ending === null)).toEqual([])
  })

  it('serves two organizations equally when both ask for its full capacity', async () => {
    const served = { one: 0, two: 0 }
    const isEnough = () => served.one + served.two >= 120
    await Promise.all([
      insist(one, 2 * queue, isEnough, () => (served.one += 1)),
      insist(two, 2 * queue, isEnough, () => (served.two += 1)),
    ])
    expect(Math.min(served.one, served.two) / Math.max(served.one, served.two)).toBeGreaterThan(0.6)
  })

  it('never rejects an organization with few calls, and serves it ahead of the queue of a busy one', async () => {
    let heavy = 0
    let done = false
    const insisting = insist(
      one,
      2 * queue,
      () => done,
      () => (heavy += 1),
    )
    await until(() => heavy > queue, 'the queue is full')
    const passedBy: number[] = []
    for (let count = 0; count < 15; count++) {
      const before = heavy
      expect(expectHonest(await call(two))).toBe(true)
      passedBy.push(heavy - before)
    }
    done = true
    await insisting
    // An organization that had to queue behind the others would see all of them served first.
    expect(passedBy.sort((a, b) => a - b)[7]).toBeLessThan(queue / 2)
  })

  it('becomes idle when the load ends', async () => {
    await until(() => place.runs().every(({ ending }) => ending !== null), 'every run has its ending')
    expect(slotsOf(place).length).toBeGreaterThan(0)
    expect(expectHonest(await call(two))).toBe(true)
  })
})
