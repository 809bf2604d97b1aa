import { redactSecrets } from '../redact-secrets.ts'
import { RecentText } from './recent-text.ts'
import type { ProgramTarget } from './sandbox-spec.ts'

const keptMaxBytes = 16 * 1024
/** What is kept of one process, for the message about its end. */
const ofProcessMaxBytes = 2 * 1024
/** Sandboxes whose standard error is kept, and upstreams whose lines are counted. */
const keptMax = 1_000
/** Longest part of a message, in characters. */
const excerptMax = 300

/** Standard error of one process. */
export interface ProcessErrors {
  add(piece: Uint8Array): void
  /** Returns the end of it for a message: `; it wrote: …`, without the secrets of the upstream. Empty for nothing. */
  lastWords(): string
}

type Sandbox = Pick<ProgramTarget, 'id' | 'credentialOf'>

/**
 * What processes have written besides messages, also those that have ended. Keys whose processes are apart do not read
 * what those of others have written: a message about the end of a process has its own words only, and what is kept for
 * administrators belongs to one credential.
 */
export class ProgramErrors {
  readonly #ofSandboxes = new Map<string, RecentText>()
  readonly #skippedLines = new Map<string, number>()
  readonly #ofInstallations = new Map<string, string>()

  /** Returns where a new process adds its standard error. */
  of(target: ProgramTarget): ProcessErrors {
    const all = this.#textOf(target)
    const own = new RecentText(ofProcessMaxBytes)
    return {
      add: (piece) => {
        all.add(piece)
        own.add(piece)
      },
      lastWords: () => {
        const text = redactSecrets(own.toString(), target)
        const excerpt = text.trim().replaceAll(/\s+/g, ' ').slice(-excerptMax)
        return excerpt === '' ? '' : `; it wrote: ${excerpt.replace(/\.$/, '')}`
      },
    }
  }

  /** Keeps why the latest installation has failed, which contains nothing of a client; empty if it has not. */
  installed(target: ProgramTarget, words: string): void {
    if (words === '') this.#ofInstallations.delete(nameOf(target))
    else keep(this.#ofInstallations, nameOf(target), words)
  }

  /** Returns what the latest installation has written, if it has failed: `; it wrote: …`. */
  installerWords(target: ProgramTarget): string {
    return this.#ofInstallations.get(nameOf(target)) ?? ''
  }

  /** Counts a line on standard output that is no message. */
  countSkippedLine(upstreamId: string): void {
    keep(this.#skippedLines, upstreamId, this.skippedLinesOf(upstreamId) + 1)
  }

  /** Returns the number of such lines. */
  skippedLinesOf(upstreamId: string): number {
    return this.#skippedLines.get(upstreamId) ?? 0
  }

  #textOf(sandbox: Sandbox): RecentText {
    const text = this.#ofSandboxes.get(nameOf(sandbox)) ?? new RecentText(keptMaxBytes)
    keep(this.#ofSandboxes, nameOf(sandbox), text)
    return text
  }

  forget({ id, credentialOf }: Sandbox): void {
    this.#ofSandboxes.delete(nameOf({ id, credentialOf }))
    this.#ofInstallations.delete(nameOf({ id, credentialOf }))
    this.#skippedLines.delete(id)
  }

  /** Returns all of the standard error that is kept of one credential, without the secrets of the upstream. */
  textOf(target: ProgramTarget): string {
    return redactSecrets(this.#ofSandboxes.get(nameOf(target))?.toString() ?? '', target)
  }
}

const nameOf = ({ id, credentialOf }: Sandbox): string => `${id} ${credentialOf}`

/** Adds or replaces an entry as the latest one, and removes the oldest one beyond the limit. */
function keep<Value>(map: Map<string, Value>, name: string, value: Value): void {
  map.delete(name)
  map.set(name, value)
  if (map.size > keptMax) map.delete(map.keys().next().value!)
}
