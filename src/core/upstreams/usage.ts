import { BackgroundJob } from '../../base/background-job.ts'
import { timestamp } from '../../base/clock.ts'
import { fault, type Log } from '../../observe/log.ts'
import type { Metrics } from '../../observe/metrics.ts'
import type { Store } from '../../store/store.ts'
import type { UpstreamUsageRow } from '../../store/upstream-rows.ts'
import { dayOf } from '../../store/usage.ts'
import type { Caller } from '../caller.ts'

/** Maximum time that counts stay in memory. A process that is killed loses the counts of this time. */
const writeEveryMs = 1_000
/** Maximum number of rows between two writes. Further calls are counted without the tool. */
const countsMax = 10_000
const toolNameMax = 128

/** One call that was relayed to an upstream. */
export interface UpstreamCall {
  upstream: string
  /** Name of an approved tool; empty for others, whose name a client chooses, and for methods other than `tools/call`. */
  tool: string
  failed: boolean
  latencyMs: number
  bytes: number
}

/** Counts calls of upstreams in memory, and writes the sums in the background, so that no call waits for the disk. */
export class UpstreamUsage {
  readonly #store: Pick<Store, 'upstreamUsage'>
  readonly #metrics: Pick<Metrics, 'calledUpstream'>
  readonly job: BackgroundJob
  #counts = new Map<string, UpstreamUsageRow>()

  constructor(store: Pick<Store, 'upstreamUsage'>, metrics: Pick<Metrics, 'calledUpstream'>, log: Log) {
    this.#store = store
    this.#metrics = metrics
    this.job = new BackgroundJob({
      everyMs: writeEveryMs,
      work: () => this.write(),
      onFault: (error) => fault(error, log),
    })
  }

  count({ orgId, keyId }: Pick<Caller, 'orgId' | 'keyId'>, call: UpstreamCall): void {
    const { upstream, failed, latencyMs, bytes } = call
    this.#metrics.calledUpstream(upstream, failed, latencyMs, bytes)
    const tool = this.#counts.size < countsMax ? call.tool.slice(0, toolNameMax) : ''
    const counted = { calls: 1, failures: failed ? 1 : 0, latencyMs: Math.round(latencyMs), bytes }
    this.#add({ orgId, keyId, day: dayOf(timestamp()), upstream, tool, ...counted })
  }

  start(): void {
    this.job.start()
  }

  /** Writes the remaining counts and stops. */
  async stop(): Promise<void> {
    await this.job.run()
    await this.job.stop()
  }

  async write(): Promise<void> {
    if (this.#counts.size === 0) return
    const counts = [...this.#counts.values()]
    this.#counts = new Map()
    try {
      await this.#store.upstreamUsage.add(counts)
    } catch (error) {
      for (const count of counts) this.#add(count)
      throw error
    }
  }

  #add(count: UpstreamUsageRow): void {
    // Neither a key, a day nor an upstream contains a space.
    const id = `${count.keyId} ${count.day} ${count.upstream} ${count.tool}`
    const known = this.#counts.get(id)
    if (known === undefined) {
      this.#counts.set(id, count)
      return
    }
    known.calls += count.calls
    known.failures += count.failures
    known.latencyMs += count.latencyMs
    known.bytes += count.bytes
  }
}

/** How usage can be grouped. */
export const usageGroups = ['server', 'tool', 'key', 'day'] as const
export type UsageGroup = (typeof usageGroups)[number]

/** The sums of the calls in one group. */
export interface UpstreamTotals {
  server?: string
  tool?: string
  key_id?: string
  day?: string
  calls: number
  failures: number
  latency_ms: number
  bytes: number
}

const fieldsOf: Record<UsageGroup, (row: UpstreamUsageRow) => Partial<UpstreamTotals>> = {
  server: ({ upstream }) => ({ server: upstream }),
  tool: ({ upstream, tool }) => ({ server: upstream, tool }),
  key: ({ keyId }) => ({ key_id: keyId }),
  day: ({ day }) => ({ day }),
}

/** Adds up usage by group, most calls first. */
export function totalsBy(group: UsageGroup, rows: readonly UpstreamUsageRow[]): UpstreamTotals[] {
  const totals = new Map<string, UpstreamTotals>()
  for (const row of rows) {
    const fields = fieldsOf[group](row)
    const id = JSON.stringify(fields)
    const sum = totals.get(id) ?? { ...fields, calls: 0, failures: 0, latency_ms: 0, bytes: 0 }
    totals.set(id, sum)
    sum.calls += Number(row.calls)
    sum.failures += Number(row.failures)
    sum.latency_ms += Number(row.latencyMs)
    sum.bytes += Number(row.bytes)
  }
  return [...totals.values()].sort((a, b) => b.calls - a.calls)
}
