import { Counter, Gauge, Registry } from 'prom-client'
import type { DiskUsage } from './inspect.ts'
import type { Observations } from './observations.ts'
import type { Vitals } from './process-vitals.ts'

/** What metrics show of the latest reports. */
export interface RuntimeSnapshot {
  version: string
  recent: Observations
  front: Vitals
  /** `null` while no runner is connected. */
  runner: Vitals | null
  slots: { made: number; failed: number; max: number } | null
  database: { databaseBytes: number; walBytes: number }
  disks: Readonly<Record<string, DiskUsage | null>>
  health: { score: number; warning: number; critical: number }
}

/** Metrics that are derived from reports when they are read, so that nothing is counted twice. */
export class RuntimeMetrics {
  readonly #all = new Registry()
  readonly #info = this.#gauge('build_info', '1, with the version of the product.', ['version'])
  readonly #score = this.#gauge('health_score', 'Score of the health report, 0 to 100.')
  readonly #issues = this.#gauge('health_issues', 'Issues of the health report.', ['severity'])
  readonly #routeSeconds = this.#counter('http_request_seconds_total', 'Time of the requests of a route.', ['route'])
  readonly #routeRequests = this.#counter('http_requests_total', 'Requests of a route.', ['route'])
  readonly #routeErrors = this.#counter('http_errors_total', 'Responses with status 500 or higher.', ['route'])
  readonly #upstreamFailing = this.#gauge('upstream_failing', 'Failed calls since the last success.', ['server'])
  readonly #statements = this.#counter('store_statements_total', 'Statements of the database.', ['outcome'])
  readonly #statementSeconds = this.#counter('store_statement_seconds_total', 'Time of the statements.')
  readonly #storeBytes = this.#gauge('store_bytes', 'Size of the database and of its write-ahead log.', ['file'])
  readonly #slow = this.#counter('slow_calls_total', 'Calls that took longer than their threshold.', ['kind'])
  readonly #lag = this.#gauge('process_event_loop_lag_seconds', 'How late timers run, 99th percentile.', ['part'])
  readonly #heapLimit = this.#gauge('process_heap_limit_bytes', 'Limit of the JavaScript heap.', ['part'])
  readonly #filesMax = this.#gauge('process_open_files_max', 'Descriptors that the process may open.', ['part'])
  readonly #slotsMade = this.#counter('slots_made_total', 'Slots since the start of the runner.', ['outcome'])
  readonly #slotsMax = this.#gauge('slots_max', 'The setting slots_max.')
  readonly #diskFree = this.#gauge('disk_free_bytes', 'Free space.', ['directory'])
  readonly #diskSize = this.#gauge('disk_size_bytes', 'Total space.', ['directory'])

  /** Returns them in the Prometheus text format. */
  text(snapshot: RuntimeSnapshot): Promise<string> {
    this.#update(snapshot)
    return this.#all.metrics()
  }

  #update(snapshot: RuntimeSnapshot): void {
    const { version, recent, health, database, disks } = snapshot
    this.#info.set({ version }, 1)
    this.#score.set(health.score)
    for (const severity of ['warning', 'critical'] as const) this.#issues.set({ severity }, health[severity])
    this.#setRoutes(recent)
    for (const [server, { failing }] of recent.upstreams) this.#upstreamFailing.set({ server }, failing)
    const { total, failed, sumMs } = recent.queries.sums
    setTotals(this.#statements, [
      [{ outcome: 'success' }, total - failed],
      [{ outcome: 'failure' }, failed],
    ])
    setTotals(this.#statementSeconds, [[{}, sumMs / 1000]])
    const slow = ([kind, calls]: [string, { sums: { slow: number } }]) => [{ kind }, calls.sums.slow] as const
    const { queries, requests, outbound } = recent
    setTotals(this.#slow, Object.entries({ queries, requests, outbound }).map(slow))
    this.#storeBytes.set({ file: 'database' }, database.databaseBytes)
    this.#storeBytes.set({ file: 'log' }, database.walBytes)
    for (const [directory, disk] of Object.entries(disks)) {
      if (disk === null) continue
      this.#diskFree.set({ directory }, disk.free_bytes)
      this.#diskSize.set({ directory }, disk.total_bytes)
    }
    this.#setProcesses(snapshot)
  }

  #setProcesses({ front, runner, slots }: RuntimeSnapshot): void {
    for (const gauge of [this.#lag, this.#heapLimit, this.#filesMax]) gauge.reset()
    for (const [part, vitals] of Object.entries({ front, runner })) {
      if (vitals === null) continue
      this.#lag.set({ part }, vitals.eventLoopLagP99Ms / 1000)
      this.#heapLimit.set({ part }, vitals.heapLimitBytes)
      this.#filesMax.set({ part }, vitals.openFilesMax)
    }
    const { made = 0, failed = 0, max = Number.NaN } = slots ?? {}
    setTotals(
      this.#slotsMade,
      slots === null
        ? []
        : [
            [{ outcome: 'success' }, made],
            [{ outcome: 'failure' }, failed],
          ],
    )
    if (slots === null) this.#slotsMax.remove()
    else this.#slotsMax.set(max)
  }

  #setRoutes({ routes }: Observations): void {
    const sums = [...routes.sums]
    setTotals(
      this.#routeRequests,
      sums.map(([route, { requests }]) => [{ route }, requests]),
    )
    setTotals(
      this.#routeErrors,
      sums.map(([route, { errors }]) => [{ route }, errors]),
    )
    setTotals(
      this.#routeSeconds,
      sums.map(([route, { totalMs }]) => [{ route }, totalMs / 1000]),
    )
  }

  #counter<Label extends string = never>(name: string, help: string, labelNames: Label[] = []): Counter<Label> {
    return new Counter({ name: `glovebox_${name}`, help, labelNames, registers: [this.#all] })
  }

  #gauge<Label extends string = never>(name: string, help: string, labelNames: Label[] = []): Gauge<Label> {
    return new Gauge({ name: `glovebox_${name}`, help, labelNames, registers: [this.#all] })
  }
}

/** Sets counters to totals that are counted elsewhere. */
export function setTotals<Label extends string>(
  counter: Counter<Label>,
  totals: readonly (readonly [labels: Partial<Record<Label, string>>, total: number])[],
): void {
  counter.reset()
  for (const [labels, total] of totals) counter.inc(labels, total)
}
