/**
 * Sends spans to a collector with OTLP over HTTP, as JSON: https://opentelemetry.io/docs/specs/otlp/#otlphttp. The packages
 * of OpenTelemetry would add some twenty megabytes for this one request.
 */
import type { Log } from './log.ts'
import type { FinishedSpan, SpanAttributes, SpanExporter } from './tracing.ts'

export interface OtlpSettings {
  /** Address of the collector for traces. */
  endpoint: string
  /** Sent with each request. */
  headers: Readonly<Record<string, string>>
  version: string
}

/** Spans that wait, at most; further ones are dropped. Each has less than a kilobyte. */
const queueMax = 2_048
/** Spans of one request. */
const batchMax = 512
/** Longest time that a span waits, and that a request to the collector takes. */
const delayMs = 2_000
const requestMs = 5_000
/** A collector that is down is reported once in this time. */
const reportEveryMs = 60_000

/** What happened to spans. */
export type SpanOutcome = 'sent' | 'failed' | 'dropped'

/** Numbers of the protocol: https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto */
const kinds = { internal: 1, server: 2, client: 3 } as const
const statusError = 2

/** A bounded queue of spans, which is sent in batches, one after the other. */
export class OtlpExporter implements SpanExporter {
  readonly #settings: OtlpSettings
  readonly #count: (outcome: SpanOutcome, spans: number) => void
  readonly #log: Log
  #queue: FinishedSpan[] = []
  #timer: NodeJS.Timeout | undefined
  #sending: Promise<void> | undefined
  #nextReportMs = 0

  /** @param count called with what happened to spans, and their number. */
  constructor(settings: OtlpSettings, count: (outcome: SpanOutcome, spans: number) => void, log: Log) {
    this.#settings = settings
    this.#count = count
    this.#log = log
  }

  add(span: FinishedSpan): void {
    if (this.#queue.length >= queueMax) {
      this.#count('dropped', 1)
      return
    }
    this.#queue.push(span)
    if (this.#queue.length >= batchMax) this.#sendSoon(0)
    else this.#sendSoon(delayMs)
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer)
    await this.#sending
    await this.#sendAll()
  }

  #sendSoon(ms: number): void {
    if (this.#sending || (this.#timer && ms > 0)) return
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      this.#sending = this.#sendAll().finally(() => {
        this.#sending = undefined
        if (this.#queue.length > 0) this.#sendSoon(delayMs)
      })
    }, ms).unref()
  }

  /** Sends what is queued now. A batch that fails is given up, so that memory stays bounded while a collector is down. */
  async #sendAll(): Promise<void> {
    const spans = this.#queue
    this.#queue = []
    for (let at = 0; at < spans.length; at += batchMax) await this.#send(spans.slice(at, at + batchMax))
  }

  async #send(spans: readonly FinishedSpan[]): Promise<void> {
    const { endpoint, headers, version } = this.#settings
    try {
      const response = await fetch(endpoint, {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json' },
        body: JSON.stringify(toRequest(spans, version)),
        redirect: 'error',
        signal: AbortSignal.timeout(requestMs),
      })
      await response.body?.cancel()
      if (!response.ok) throw new Error(`it answered with status ${response.status}`)
      this.#count('sent', spans.length)
    } catch (error) {
      this.#count('failed', spans.length)
      if (Date.now() < this.#nextReportMs) return
      this.#nextReportMs = Date.now() + reportEveryMs
      this.#log.warn({ problem: problemOf(error) }, 'traces could not be sent to the collector')
    }
  }
}

/** fetch() hides the reason in the cause of its error. */
function problemOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error ? error.cause.message : error.message
}

const toRequest = (spans: readonly FinishedSpan[], version: string): object => ({
  resourceSpans: [
    {
      resource: { attributes: toAttributes({ 'service.name': 'glovebox', 'service.version': version }) },
      scopeSpans: [{ scope: { name: 'glovebox', version }, spans: spans.map(toSpan) }],
    },
  ],
})

const toSpan = ({ name, kind, startMs, durationMs, attributes, hasFailed, ...ids }: FinishedSpan): object => ({
  ...{ name, kind: kinds[kind], traceId: ids.traceId, spanId: ids.spanId },
  ...(ids.parentSpanId !== undefined && { parentSpanId: ids.parentSpanId }),
  ...{ startTimeUnixNano: toNanoseconds(startMs), endTimeUnixNano: toNanoseconds(startMs + durationMs) },
  attributes: toAttributes(attributes),
  ...(hasFailed && { status: { code: statusError } }),
})

/** As text: the number does not fit into one of JSON. */
const toNanoseconds = (ms: number): string => (BigInt(Math.round(ms * 1_000)) * 1_000n).toString()

const toAttributes = (attributes: SpanAttributes): object[] =>
  Object.entries(attributes).map(([key, value]) => ({ key, value: toValue(value) }))

function toValue(value: string | number | boolean): object {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'boolean') return { boolValue: value }
  return Number.isInteger(value) ? { intValue: `${value}` } : { doubleValue: value }
}
