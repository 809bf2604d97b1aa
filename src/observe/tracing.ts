import { AsyncLocalStorage } from 'node:async_hooks'
import { randomFillSync } from 'node:crypto'
import { monotonicMs, wallMs } from '../base/clock.ts'

/** https://www.w3.org/TR/trace-context/#traceparent-header-field-values */
const traceparentPattern = /^(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})$/

/** Returns whether a text is a valid `traceparent`. */
export const isTraceparent = (text: string): boolean => traceparentPattern.test(text)

/** What a span says of its work. Never what a client sent: no code, arguments, bodies, headers or paths. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean>>

/** Whose request a span is part of: one that arrives, one to another server, or neither. */
export type SpanKind = 'server' | 'client' | 'internal'

export interface FinishedSpan {
  name: string
  kind: SpanKind
  traceId: string
  spanId: string
  parentSpanId: string | undefined
  /** Wall-clock time in milliseconds. */
  startMs: number
  durationMs: number
  attributes: SpanAttributes
  hasFailed: boolean
}

/** Sends spans to a collector. */
export interface SpanExporter {
  /** Queues a span; drops it when the queue is full. */
  add(span: FinishedSpan): void
  /** Sends what is queued, within some seconds. */
  close(): Promise<void>
}

const random = Buffer.alloc(4_096)
let randomAt = random.length

/** Filled for many IDs at once: a call of its own would be most of the cost of a span. */
function randomHex(bytes: number): string {
  if (randomAt + bytes > random.length) {
    randomFillSync(random)
    randomAt = 0
  }
  randomAt += bytes
  return random.toString('hex', randomAt - bytes, randomAt)
}

interface SpanPlace {
  traceId: string
  parentSpanId: string | undefined
  isSampled: boolean
}

/** Work that is part of a trace and has not ended. */
export class Span {
  readonly spanId = randomHex(8)
  #place: SpanPlace
  readonly #finish: (place: SpanPlace, durationMs: number, more: SpanAttributes, hasFailed: boolean) => void
  readonly #startedMs = monotonicMs()
  #hasEnded = false

  constructor(
    place: SpanPlace,
    finish: (place: SpanPlace, durationMs: number, more: SpanAttributes, hasFailed: boolean) => void,
  ) {
    this.#place = place
    this.#finish = finish
  }

  get traceId(): string {
    return this.#place.traceId
  }

  get isSampled(): boolean {
    return this.#place.isSampled
  }

  /** For the next server. */
  get traceparent(): string {
    return `00-${this.traceId}-${this.spanId}-${this.isSampled ? '01' : '00'}`
  }

  /** Makes it a part of the trace of a client, unless it already is part of one. Before it has parts of its own. */
  continueFrom(traceparent: string): void {
    if (this.#place.parentSpanId === undefined) this.#place = placeAfter(traceparent) ?? this.#place
  }

  /** Can be called twice. @param more attributes that are known at the end. */
  end(more: SpanAttributes = {}, hasFailed = false): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    this.#finish(this.#place, monotonicMs() - this.#startedMs, more, hasFailed)
  }
}

function placeAfter(traceparent: string | undefined): SpanPlace | undefined {
  const [, traceId, parentSpanId, flags] = traceparentPattern.exec(traceparent ?? '') ?? []
  if (traceId === undefined || parentSpanId === undefined || flags === undefined) return undefined
  return { traceId, parentSpanId, isSampled: (Number.parseInt(flags, 16) & 1) === 1 }
}

/**
 * Records traces. A server without a collector has no object of this class, and pays nothing. The runner, which reaches no
 * network, reports the phases of its runs; the front records them as spans.
 */
export class Tracing {
  readonly #exporter: SpanExporter
  readonly #ratio: number
  readonly #current = new AsyncLocalStorage<Span>()

  /** @param ratio of the traces that begin here; a client decides on those that it has begun. */
  constructor(exporter: SpanExporter, ratio: number) {
    this.#exporter = exporter
    this.#ratio = ratio
  }

  /** The span of the request that the calling function works for. */
  get current(): Span | undefined {
    return this.#current.getStore()
  }

  /** Calls a function whose work is part of a span. */
  within<Result>(span: Span, work: () => Result): Result {
    return this.#current.run(span, work)
  }

  /** Begins a span: a part of the current one, or of the trace of `traceparent`, or of a new trace. */
  begin(name: string, kind: SpanKind, attributes: SpanAttributes, traceparent?: string): Span {
    const startMs = wallMs()
    const span: Span = new Span(this.#placeOf(traceparent), (place, durationMs, more, hasFailed) => {
      if (!place.isSampled) return
      const { spanId } = span
      const { traceId, parentSpanId } = place
      const all = { ...attributes, ...more }
      this.#exporter.add({ name, kind, traceId, spanId, parentSpanId, startMs, durationMs, attributes: all, hasFailed })
    })
    return span
  }

  #placeOf(traceparent: string | undefined): SpanPlace {
    const { current } = this
    if (current) return { traceId: current.traceId, parentSpanId: current.spanId, isSampled: current.isSampled }
    const isSampled = Math.random() < this.#ratio
    return placeAfter(traceparent) ?? { traceId: randomHex(16), parentSpanId: undefined, isSampled }
  }

  /**
   * Records work that has just ended, with its phases, which follow each other.
   * @param phases durations in milliseconds, by name.
   */
  record(name: string, phases: Readonly<Record<string, number>>, attributes: SpanAttributes, hasFailed: boolean): void {
    const { traceId, parentSpanId, isSampled } = this.#placeOf(undefined)
    if (!isSampled) return
    const durationMs = Object.values(phases).reduce((sum, ms) => sum + ms, 0)
    const spanId = randomHex(8)
    const add = (
      own: string,
      id: string,
      parent: string | undefined,
      startMs: number,
      ms: number,
      of: SpanAttributes,
    ) =>
      this.#exporter.add({
        ...{ name: own, kind: 'internal', traceId, spanId: id, parentSpanId: parent, startMs, durationMs: ms },
        ...{ attributes: of, hasFailed: hasFailed && id === spanId },
      })
    let startMs = wallMs() - durationMs
    add(name, spanId, parentSpanId, startMs, durationMs, attributes)
    for (const [phase, ms] of Object.entries(phases)) {
      if (ms > 0) add(phase, randomHex(8), spanId, startMs, ms, {})
      startMs += ms
    }
  }

  close(): Promise<void> {
    return this.#exporter.close()
  }
}
