import { describe, expect, it } from 'vitest'
import { createLog, fault, type Log, type LogFormat } from '../../../src/observe/log.ts'

function logged(format: LogFormat, write: (log: Log) => void, isTTY = false): string {
  let text = ''
  const destination = { write: (line: string) => (text += line), isTTY }
  write(createLog({ level: 'debug', format, destination, bindings: { process: 'front' } }))
  return text
}

describe('a log line', () => {
  it('is one JSON object with its level, time and bindings', () => {
    const line = JSON.parse(
      logged('json', (log) => log.child({ request_id: 'req_1' }).info({ run_id: 'trc_1' }, 'hello')),
    )
    expect(line).toMatchObject({
      level: 'info',
      process: 'front',
      request_id: 'req_1',
      run_id: 'trc_1',
      msg: 'hello',
    })
    expect(new Date(line.time).toISOString()).toBe(line.time)
  })

  it('is readable text on a terminal, and JSON elsewhere, when the format is auto', () => {
    expect(logged('auto', (log) => log.info('hello'), true)).toMatch(/INFO.*hello/)
    expect(JSON.parse(logged('auto', (log) => log.info('hello'), false)).msg).toBe('hello')
  })

  it('is not written below the configured level', () => {
    expect(logged('json', (log) => log.trace('hello'))).toBe('')
  })

  it('stays one line, whatever the message contains', () => {
    const text = logged('json', (log) => log.info({ name: 'a\nb' }, 'one\n{"level":"fatal"}'))
    expect(text.trimEnd().split('\n')).toHaveLength(1)
  })
})

describe('a fault', () => {
  it('is logged once, with its causes, under the id that the caller receives', () => {
    let id = ''
    const text = logged('json', (log) => {
      id = fault(new Error('disk full', { cause: Object.assign(new Error('write'), { code: 'ENOSPC' }) }), log)
    })
    const line = JSON.parse(text)
    expect(id).toMatch(/^flt_/)
    expect(line).toMatchObject({ level: 'error', fault_id: id })
    expect(line.err).toMatchObject({ message: 'disk full', cause: { message: 'write', error_code: 'ENOSPC' } })
    expect(line.err.stack).toContain('log.test.ts')
  })

  it('can be any value that can be thrown', () => {
    for (const thrown of ['text', null, undefined, 7, { message: 'x' }, Object.create(null)]) {
      expect(JSON.parse(logged('json', (log) => void fault(thrown, log))).fault_id).toMatch(/^flt_/)
    }
  })
})
