import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createLog, fault, type Log } from '../../../src/observe/log.ts'
import { hiddenNames, redact } from '../../../src/observe/redact.ts'

const secret = 'hunter2hunter2'
const key = 'sk-us1-AbCdEf0123456789_-xyz'

function logged(write: (log: Log) => void): string {
  let text = ''
  for (const format of ['json', 'pretty'] as const) {
    write(createLog({ level: 'trace', format, destination: { write: (line) => (text += line) } }))
  }
  expect(text).not.toBe('')
  return text
}

/** Nests a value in levels of objects, arrays and errors. */
const nested = fc.array(fc.constantFrom('object', 'list', 'error', 'cause', 'map'), { maxLength: 5 })
function wrap(value: object, levels: readonly string[]): object {
  return levels.reduce<object>((inner, level) => {
    switch (level) {
      case 'list':
        return [inner, 1]
      case 'error':
        return Object.assign(new Error('x'), { inner })
      case 'cause':
        return new Error('x', { cause: inner })
      case 'map':
        return { map: new Map([['inner', inner]]) }
      default:
        return { inner }
    }
  }, value)
}

describe('a log line never contains', () => {
  const spellings = (name: string) => [name, name.toUpperCase(), name.replace(/^(x|set|api|proxy)/, '$1-')]

  for (const name of hiddenNames) {
    it(`the value of a field named ${name}, however nested and spelled`, () => {
      fc.assert(
        fc.property(fc.constantFrom(...spellings(name)), nested, (spelling, levels) => {
          const fields = wrap({ [spelling]: secret }, levels)
          const text = logged((log) => {
            log.info({ fields })
            log.info(fields)
            log.child({ fields }).warn('x')
            log.child(fields as Record<string, unknown>).warn('x')
            fault(fields, log)
          })
          expect(text).not.toContain(secret)
        }),
        { numRuns: 20 },
      )
    })
  }

  it('the variables of a run, as a map, as pairs, or inside a whole request', () => {
    const text = logged((log) => {
      log.info({ env: { TOKEN_OF_USER: secret } })
      log.info({ spec: { runId: 'trc_1', env: [`A=${secret}`] } })
      log.info({ body: { env_vars: { A: { deep: secret } } } })
      log.error({ err: Object.assign(new Error('x'), { spawnOptions: { env: { A: secret } } }) })
    })
    expect(text).not.toContain(secret)
    expect(text).toContain('trc_1')
  })

  it('the source code of a run, as text or bytes', () => {
    const text = logged((log) => {
      log.info({ input: { code: `print("${secret}")` } })
      log.info({ payload: Buffer.from(secret) })
      log.info({ payload: new Uint8Array(Buffer.from(secret)) })
      log.info({ deeper: { payload: new Uint8Array(Buffer.from(secret)) } })
    })
    expect(text).not.toContain(secret)
    expect(text).not.toContain([...Buffer.from(secret)].join(','))
    expect(text).not.toMatch(/104.{1,20}117.{1,20}110.{1,20}116/)
  })

  it('a key, in any surrounding text', () => {
    const text = logged((log) => {
      log.info(`called with ${key}`)
      log.info('called with %s', key)
      log.info({ [key]: 1, list: [`a ${key} b`], url: new URL(`http://x.example/?key=${key}`) })
      log.child({ note: key }).info('x')
      fault(new Error(`refused ${key}`, { cause: `cause ${key}` }), log)
      log.info({ header: `Bearer ${secret}`, address: `https://user:${secret}@host.example/` })
      log.info({ body: JSON.stringify({ nested: JSON.stringify({ key }) }) })
    })
    expect(text).not.toContain(key)
    expect(text).not.toContain('AbCdEf0123456789')
    expect(text).not.toContain(secret)
    expect(text).toContain('host.example')
  })
})

describe('redaction', () => {
  it('keeps everything that is not secret', () => {
    const plain = { run_id: 'trc_1', bytes: 3, list: ['a', null, true], exit: { code: 3 } }
    expect(redact(plain)).toEqual(plain)
  })

  it('does not modify its input', () => {
    const given = { env: { A: '1' }, list: [{ code: 'x' }] }
    const before = structuredClone(given)
    redact(given)
    expect(given).toEqual(before)
  })

  it('returns bounded plain data for any value', () => {
    const circular: Record<string, unknown> = { name: 'x' }
    circular.self = circular
    const hostile = Object.defineProperty({}, 'a', {
      enumerable: true,
      get() {
        throw new Error('no')
      },
    })
    const large = { text: 'x'.repeat(10_000_000), list: new Array(100_000).fill('y') }
    for (const value of [circular, hostile, large, new Proxy({}, { ownKeys: () => ['a', 'a'] })]) {
      expect(JSON.stringify(redact(value)).length).toBeLessThan(50_000)
    }
    fc.assert(
      fc.property(fc.anything({ withBigInt: true, withMap: true, withSet: true, withDate: true }), (value) => {
        JSON.stringify(redact(value))
      }),
    )
  })

  it('lets no field modify the prototype', () => {
    const copy = redact(JSON.parse('{"__proto__": {"polluted": true}}')) as Record<string, unknown>
    expect(copy.polluted).toBeUndefined()
    expect(Object.getPrototypeOf(copy)).toBe(Object.prototype)
  })
})
