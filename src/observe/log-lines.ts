import { Ring } from './ring.ts'

/** Lines that are kept of each process. A line has at most a few kilobytes, so this is bounded memory. */
export const logLinesMax = 500
/** A longer line is cut. */
const lineCharactersMax = 4_096

/** Values of `level`, mildest first. */
const severities: readonly string[] = ['trace', 'debug', 'info', 'warn', 'error', 'fatal']

export interface LogEntry {
  time: string
  level: string
  process: string
  text: string
}

export interface LogQuery {
  limit?: number | undefined
  /** Entries of this level and above. */
  level?: string | undefined
  /** A part of the line, in any case. */
  keyword?: string | undefined
}

/** The latest lines of a log, after secrets were hidden. */
export class LogLines {
  readonly #lines = new Ring<string>(logLinesMax)
  #errors = 0
  #errorTimesMs = new Ring<number>(logLinesMax)

  /** @param line a JSON object, as it is written. */
  add(line: string): void {
    this.#lines.add(line.length > lineCharactersMax ? line.slice(0, lineCharactersMax) : line)
    if (!line.includes('"level":"error"') && !line.includes('"level":"fatal"')) return
    this.#errors += 1
    this.#errorTimesMs.add(Date.now())
  }

  /** Number of lines that are kept. */
  get size(): number {
    return this.#lines.size
  }

  /** Errors since the start. */
  get errors(): number {
    return this.#errors
  }

  /** Returns how many errors were logged within a time. */
  recentErrors(withinMs: number): number {
    const since = Date.now() - withinMs
    return this.#errorTimesMs.newest().filter((atMs) => atMs >= since).length
  }

  /** Returns the latest entries, newest first. */
  find({ limit = 50, level = 'trace', keyword = '' }: LogQuery): LogEntry[] {
    const least = severities.indexOf(level)
    const wanted = keyword.toLowerCase()
    const found: LogEntry[] = []
    for (const line of this.#lines.newest()) {
      if (found.length >= limit) break
      const entry = toEntry(line)
      const isSevere = severities.indexOf(entry.level) >= least
      if (isSevere && line.toLowerCase().includes(wanted)) found.push(entry)
    }
    return found
  }
}

/** A line that was cut is no JSON any more, but its first fields can be read. */
function toEntry(line: string): LogEntry {
  const field = (pattern: RegExp): string => pattern.exec(line)?.[1] ?? ''
  return {
    time: field(/"time":"([^"]*)"/),
    level: field(/"level":"([^"]*)"/),
    process: field(/"p(?:rocess)":"([^"]*)"/),
    text: line.trimEnd(),
  }
}
