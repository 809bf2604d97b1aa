import { LRUCache } from 'lru-cache'
import { timestamp } from '../../../base/clock.ts'
import { Refusal } from '../../../base/errors.ts'
import { fault, type Log } from '../../../observe/log.ts'
import type { UpstreamSandboxRow, UpstreamSandboxRows } from '../../../store/upstream-sandboxes.ts'

/** Interval in which the latest output of an installer is stored. */
const reportMs = 1_000
/** Longest line of an installer that is reported, in characters. */
const lineMax = 300

/** The installation of a program that is in progress, or the latest one if it has failed. */
export interface Installation {
  state: 'installing' | 'failed'
  started_at: string
  /** What the installer wrote last, without the secrets of the upstream. Empty for nothing. */
  last_line: string
  /** Why it failed; `null` while it is in progress. */
  problem: string | null
}

/** Returns the installation that is stored in a row. One whose process was killed is not reported. */
export function installationIn(row: UpstreamSandboxRow | undefined): Installation | null {
  if (row === undefined || row.installation === null) return null
  const known = JSON.parse(row.installation) as Installation
  const isRunning = row.installer !== null && row.installerUntil! >= timestamp()
  return known.state === 'installing' && !isRunning ? null : known
}

/**
 * Stores what an installation does while it is done, so that every process can report it.
 * @param output returns the output of the installer so far.
 * @throws what `install` throws.
 */
export async function reported(
  rows: UpstreamSandboxRows,
  id: string,
  output: () => string,
  install: () => Promise<void>,
): Promise<void> {
  const started_at = timestamp()
  let said = ''
  const store = (state: Installation['state'], problem: string | null) => {
    said = lastLineOf(output())
    const installation: Installation = { state, started_at, last_line: said, problem }
    return rows.update(id, { installation: JSON.stringify(installation) })
  }
  await store('installing', null)
  const timer = setInterval(() => {
    // An update that fails is followed by another one.
    if (lastLineOf(output()) !== said) store('installing', null).catch(() => {})
  }, reportMs).unref()
  try {
    await install()
    clearInterval(timer)
    await rows.update(id, { installation: null })
  } catch (error) {
    clearInterval(timer)
    await store('failed', error instanceof Refusal ? error.message : 'internal error')
    throw error
  }
}

const lastLineOf = (output: string): string => output.trimEnd().split('\n').at(-1)!.trim().slice(0, lineMax)

/** Maximum number of upstreams whose failures are known. */
const failuresMax = 1_000

/** Work that a request has begun and does not wait for, at most one for each upstream. */
export class BackgroundReadings {
  readonly #log: Log | undefined
  /** When each began, by ID of the upstream, as ISO 8601. */
  readonly #running = new Map<string, string>()
  readonly #failures = new LRUCache<string, Installation>({ max: failuresMax })

  constructor(log: Log | undefined) {
    this.#log = log
  }

  /** Returns the work for an upstream, or the latest one if it has failed. */
  of(upstreamId: string): Installation | null {
    const started_at = this.#running.get(upstreamId)
    if (started_at === undefined) return this.#failures.get(upstreamId) ?? null
    return { state: 'installing', started_at, last_line: '', problem: null }
  }

  /** Forgets a failure. */
  forget(upstreamId: string): void {
    this.#failures.delete(upstreamId)
  }

  /** Begins work for an upstream, unless there is some already. */
  begin(upstreamId: string, work: () => Promise<unknown>): void {
    if (this.#running.has(upstreamId)) return
    const started_at = timestamp()
    this.#running.set(upstreamId, started_at)
    this.forget(upstreamId)
    work()
      .catch((error: unknown) => {
        const problem = error instanceof Refusal ? error.message : 'internal error'
        this.#failures.set(upstreamId, { state: 'failed', started_at, last_line: '', problem })
        if (!(error instanceof Refusal) && this.#log) fault(error, this.#log)
      })
      .finally(() => this.#running.delete(upstreamId))
  }
}
