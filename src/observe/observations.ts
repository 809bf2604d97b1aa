import { MinuteCounts } from './minute-counts.ts'
import { RecentRuns } from './recent-runs.ts'
import { Routes } from './routes.ts'
import { SlowCalls } from './slow-calls.ts'

/** Statements take microseconds; one that takes this long blocks every other request meanwhile. */
const slowQueryMs = 100

/** Upstreams whose calls are counted separately; all others are counted together. */
const upstreamsMax = 200

/** The calls of one upstream, over all organizations that have one of this name. */
export interface UpstreamFigures {
  calls: number
  failures: number
  /** Failures since the last success. */
  failing: number
  totalMs: number
}

/** What the API server remembers of its latest work, in bounded memory. */
export class Observations {
  readonly requests = new SlowCalls()
  readonly queries = new SlowCalls({ threshold_ms: slowQueryMs })
  /** Calls of upstreams and webhook deliveries. */
  readonly outbound = new SlowCalls()
  readonly answers = new MinuteCounts()
  readonly routes = new Routes()
  readonly runs = new RecentRuns()
  readonly upstreams = new Map<string, UpstreamFigures>()

  /** Counts a call of an upstream. */
  countUpstream(name: string, ms: number, isFailure: boolean): void {
    this.outbound.count(ms, isFailure, () => ({ what: `upstream ${name}` }))
    const known = this.upstreams.get(name) ?? this.#addUpstream(name)
    known.calls += 1
    known.totalMs += ms
    known.failures += isFailure ? 1 : 0
    known.failing = isFailure ? known.failing + 1 : 0
  }

  #addUpstream(name: string): UpstreamFigures {
    const counted = this.upstreams.size < upstreamsMax ? name : 'other'
    const figures = this.upstreams.get(counted) ?? { calls: 0, failures: 0, failing: 0, totalMs: 0 }
    this.upstreams.set(counted, figures)
    return figures
  }
}
