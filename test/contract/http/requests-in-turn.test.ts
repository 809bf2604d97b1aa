/** Attack on promise 24: requests of one organization that all begin at once keep the event loop from others. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../../src/core/admin/admin.ts'
import { createKey } from '../../../src/core/admin/keys.ts'
import { createOrg } from '../../../src/core/admin/orgs.ts'
import { Turns } from '../../../src/http/requests-in-turn.ts'
import { type Front, openFront, testProfile } from '../../support/front.ts'
import { RawConnection, rawRequest } from '../../support/raw-http.ts'

const many = 300

describe('requests that begin at once', () => {
  it('begin in the order in which they came, some of each owner in every turn of the event loop', async () => {
    const turns = new Turns()
    const begun: string[] = []
    for (let n = 0; n < 100; n++) turns.begin('busy', () => begun.push(`busy ${n}`))
    turns.begin('other', () => begun.push('other'))
    const first = begun.length - 1
    expect(first).toBeLessThan(50)
    expect(begun[first]).toBe('other')
    await nextTurn()
    turns.begin('busy', () => begun.push('busy later'))
    turns.begin('other', () => begun.push('other again'))
    expect(begun.at(-1)).toBe('other again')
    while (begun.length < 103) await nextTurn()
    const busy = begun.filter((name) => name.startsWith('busy'))
    expect(busy).toEqual([...Array.from({ length: 100 }, (_, n) => `busy ${n}`), 'busy later'])
  })

  it('begin in larger numbers while no other owner sends any', async () => {
    const clock = { nowMs: 0 }
    const turns = new Turns(() => clock.nowMs)
    const begunInATurn = async () => {
      let begun = 0
      for (let n = 0; n < 100; n++) turns.begin('busy', () => (begun += 1))
      const inFirst = begun
      while (begun < 100) await nextTurn()
      await nextTurn()
      return inFirst
    }
    const alone = await begunInATurn()
    turns.begin('other', () => undefined)
    await nextTurn()
    const shared = await begunInATurn()
    expect(shared).toBeLessThanOrEqual(alone / 4)
    clock.nowMs += 300
    expect(await begunInATurn()).toBe(alone)
  })

  it('of many owners begin one after another, each in turn', async () => {
    const turns = new Turns()
    const begun: string[] = []
    for (let n = 0; n < 50; n++) turns.begin('busy', () => begun.push('busy'))
    for (let n = 0; n < 40; n++) for (const part of [1, 2]) turns.begin(`${n}`, () => begun.push(`${n} ${part}`))
    while (begun.length < 130) await nextTurn()
    // Nobody has a second turn before all others had their first.
    const lastFirst = Math.max(...Array.from({ length: 40 }, (_, n) => begun.indexOf(`${n} 1`)))
    const firstSecond = Math.min(...Array.from({ length: 24 }, (_, n) => begun.indexOf(`${n + 16} 2`)))
    expect(lastFirst).toBeLessThan(firstSecond)
    expect(begun.slice(0, lastFirst).filter((name) => name === 'busy').length).toBeLessThan(30)
  })

  it('share the turns with visitors of published ports', async () => {
    const turns = new Turns()
    let visits = 0
    const visiting = Array.from({ length: 100 }, () => turns.turnOf('busy').then(() => (visits += 1)))
    const requested = turns.turnOf('other').then(() => visits)
    expect(await requested).toBeLessThan(50)
    await Promise.all(visiting)
    expect(visits).toBe(100)
  })
})

describe('a key with many requests at once', () => {
  let front: Front
  beforeAll(async () => {
    front = await openFront(testProfile, { dev: false })
  })
  afterAll(() => front.close())

  it('keeps another organization waiting for a few of them only', async () => {
    const keyOf = async (name: string) => {
      const org = await createOrg(front.core.adminContext, operator, name)
      return (await createKey(front.core.adminContext, operator, org.id, {}, ['sandbox_execute'])).secret
    }
    const [hostile, good] = [await keyOf('many requests'), await keyOf('one request')]
    const headOf = (key: string) => ({ host: `127.0.0.1:${front.port}`, 'x-api-key': key, connection: 'keep-alive' })
    const open = Array.from({ length: many + 1 }, () => new RawConnection(front.port))
    const list = (connection: RawConnection, key: string) =>
      connection.write(rawRequest('GET', '/v1/threads', headOf(key)))
    const keyAt = (at: number) => (at < many ? hostile : good)
    // Connections that exist already, so that all requests arrive in one turn.
    for (const [at, connection] of open.entries()) {
      await list(connection, keyAt(at))
      await connection.response()
    }
    const answered: number[] = []
    const answers = open.map(async (connection, at) => {
      const response = await connection.response()
      answered.push(at)
      return response?.status
    })
    await Promise.all(open.map((connection, at) => list(connection, keyAt(at))))
    await Promise.all(answers)
    // It was sent last: without turns it is also answered last.
    expect(answered.indexOf(many)).toBeLessThan(many / 2)
    for (const connection of open) connection.destroy()
  })
})
