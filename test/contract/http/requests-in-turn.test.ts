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
