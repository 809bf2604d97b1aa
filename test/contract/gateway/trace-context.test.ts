import { describe, expect, it } from 'vitest'
import { withTrace } from '../../../src/gateway/trace-context.ts'

const [ours, theirs] = ['a', 'b'].map((digit) => `00-${digit.repeat(32)}-00f067aa0ba902b7-01`) as [string, string]
const request = (params?: object) => ({ id: 1, method: 'tools/call', ...(params && { params: { ...params } }) })

describe('a message to a program', () => {
  it('names the trace in _meta, beside what its client has put there', () => {
    const trace = { traceparent: ours, tracestate: 'x=1' }
    expect(withTrace(request(), trace)).toEqual(request({ _meta: trace }))
    expect(withTrace(request({ _meta: { progressToken: 1 } }), { traceparent: ours })).toEqual(
      request({ _meta: { progressToken: 1, traceparent: ours } }),
    )
  })

  it('keeps the state of its own trace only', () => {
    const given = (traceparent: string) => request({ _meta: { traceparent, tracestate: 'x=1' } })
    const sameTrace = ours.replace('00f067aa0ba902b7', '00f067aa0ba902b8')
    expect(withTrace(given(sameTrace), { traceparent: ours })).toEqual(given(ours))
    expect(withTrace(given(theirs), { traceparent: ours })).toEqual(request({ _meta: { traceparent: ours } }))
  })

  it.each([
    ['the trace is unknown', request({ _meta: { traceparent: theirs } }), {}],
    ['the trace is invalid', request(), { traceparent: 'x\r\ny' }],
    ['it is a response', { id: 1, result: {} }, { traceparent: ours }],
    ['its parameters are no object', { id: 1, method: 'x', params: [] as never }, { traceparent: ours }],
    ['its _meta is no object', { id: 1, method: 'x', params: { _meta: 'x' as never } }, { traceparent: ours }],
  ])('is unchanged if %s', (_, message, trace) => {
    expect(withTrace(message, trace)).toBe(message)
  })
})
