import { redactSecrets } from '../redact-secrets.ts'
import { RecentText } from './recent-text.ts'
import type { ProgramTarget } from './sandbox-spec.ts'

const keptMaxBytes = 16 * 1024
/** Upstreams whose standard error is kept. */
const upstreamsMax = 1_000
/** Longest part of a message, in characters. */
const excerptMax = 300

interface Kept {
  stderr: RecentText
  skippedLines: number
}

/** What the processes of each upstream have written besides messages, also those that have ended. */
export class ProgramErrors {
  readonly #ofUpstreams = new Map<string, Kept>()

  /** Returns where the processes of an upstream add their standard error. */
  of(upstreamId: string): RecentText {
    return this.#keptOf(upstreamId).stderr
  }

  /** Counts a line on standard output that is no message. */
  countSkippedLine(upstreamId: string): void {
    this.#keptOf(upstreamId).skippedLines += 1
  }

  /** Returns the number of such lines. */
  skippedLinesOf(upstreamId: string): number {
    return this.#ofUpstreams.get(upstreamId)?.skippedLines ?? 0
  }

  #keptOf(upstreamId: string): Kept {
    const known = this.#ofUpstreams.get(upstreamId) ?? { stderr: new RecentText(keptMaxBytes), skippedLines: 0 }
    this.#ofUpstreams.delete(upstreamId)
    this.#ofUpstreams.set(upstreamId, known)
    if (this.#ofUpstreams.size > upstreamsMax) this.#ofUpstreams.delete(this.#ofUpstreams.keys().next().value!)
    return known
  }

  forget(upstreamId: string): void {
    this.#ofUpstreams.delete(upstreamId)
  }

  /** Returns all of the standard error that is kept, without the secrets of the upstream. */
  textOf(target: ProgramTarget): string {
    return redactSecrets(this.#ofUpstreams.get(target.id)?.stderr.toString() ?? '', target)
  }

  /** Returns the end of it for a message: `; it wrote: …`. Empty for nothing. */
  lastWordsOf(target: ProgramTarget): string {
    const excerpt = this.textOf(target).trim().replaceAll(/\s+/g, ' ').slice(-excerptMax)
    return excerpt === '' ? '' : `; it wrote: ${excerpt.replace(/\.$/, '')}`
  }
}
