import { describe, expect, it } from 'vitest'
import { answerQuery } from '../../../src/egress/dns.ts'
import { closeJailsAfterAll, openJail } from '../../support/egress-jail.ts'

const types = { A: 1, TXT: 16, AAAA: 28 } as const

function query(name: string, type: keyof typeof types = 'A'): Buffer {
  const labels = name.split('.').map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]))
  const end = Buffer.from([0, 0, types[type], 0, 1])
  return Buffer.concat([Buffer.from([0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]), ...labels, end])
}

/** The code of an answer, and the address in it. */
function read(answer: Buffer | undefined) {
  if (answer === undefined) return undefined
  const hasAddress = answer.readUInt16BE(6) === 1
  return {
    id: answer.readUInt16BE(0),
    code: answer[3]! & 15,
    address: hasAddress ? [...answer.subarray(-4)].join('.') : null,
  }
}

describe('the name server of a jail', () => {
  closeJailsAfterAll()
  const asked: string[] = []
  const found = (name: string) => () => {
    asked.push(name)
    return ['93.184.216.34']
  }
  const open = () =>
    openJail(
      { rules: ['a.test', '*.b.test:*', 'absent.test'] },
      { 'a.test': found('a.test'), 'x.b.test': found('x.b.test'), 'other.test': found('other.test') },
    )

  it('gives each allowed name an address that stands for it', async () => {
    const { jail } = await open()
    const first = read(await answerQuery(jail, query('a.test')))
    expect(first).toEqual({ id: 0x1234, code: 0, address: '198.18.0.1' })
    expect(read(await answerQuery(jail, query('X.b.test')))?.address).toBe('198.18.0.2')
    expect(read(await answerQuery(jail, query('a.test')))).toEqual(first)
    expect(jail.names.nameOf('198.18.0.2')).toBe('x.b.test')
    expect(jail.names.nameOf('198.18.0.3')).toBeUndefined()
    expect(jail.names.nameOf('1.2.3.4')).toBeUndefined()
  })

  it('has no other records of it', async () => {
    const { jail } = await open()
    for (const type of ['AAAA', 'TXT'] as const)
      expect(read(await answerQuery(jail, query('a.test', type)))).toEqual({ id: 0x1234, code: 0, address: null })
  })

  it('does not pass on anything of a name that is not allowed', async () => {
    const { jail } = await open()
    asked.length = 0
    for (const name of ['other.test', 'data.other.test', 'b.test', 'a.test.other.test'])
      expect(read(await answerQuery(jail, query(name)))).toMatchObject({ code: 3, address: null })
    expect(asked).toEqual([])
  })

  it('says that an allowed name does not exist when it does not', async () => {
    const { jail } = await open()
    expect(read(await answerQuery(jail, query('absent.test')))).toMatchObject({ code: 3 })
  })

  it('answers or ignores whatever it receives', async () => {
    const { jail } = await open()
    const whole = query('a.test')
    for (let length = 0; length < whole.length; length++) {
      const answer = read(await answerQuery(jail, whole.subarray(0, length)))
      expect([length, answer?.code]).toEqual([length, length < 12 ? undefined : 1])
    }
    for (let at = 2; at < whole.length; at++) {
      const broken = Buffer.from(whole)
      broken[at] = 0xff
      await answerQuery(jail, broken)
    }
    expect(
      await answerQuery(jail, Buffer.concat([whole.subarray(0, 2), Buffer.from([0x81]), whole.subarray(3)])),
    ).toBeUndefined()
  })
})
