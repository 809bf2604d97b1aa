import type { IncomingHttpHeaders } from 'node:http'
import { line } from './output-lines.ts'

/**
 * The lines of a stream in the form that the Python package `baponi` reads (version 0.5). It refuses a stream with a line
 * of another type, so lines that have no counterpart are left out.
 */
export class BaponiLines {
  #seq = 0

  /** @param text zero or more lines, as other clients get them. */
  convert(text: string): string {
    return text
      .split('\n')
      .filter((one) => one !== '')
      .map((one) => this.#convertLine(JSON.parse(one) as Line))
      .join('')
  }

  /** The line after a silence. Its `seq` is that of the line before, from which a client resumes. */
  keepAlive(): string {
    return line({ type: 'keepalive', seq: this.#seq })
  }

  #convertLine(ours: Line): string {
    this.#seq = Math.max(this.#seq, ours.seq ?? 0)
    const seq = this.#seq
    switch (ours.type) {
      case 'status':
        return line({ ...ours, seq })
      case 'stdout':
      case 'stderr':
        return line({ type: 'output', stream: ours.type, data: ours.data ?? '', seq })
      case 'result':
        return line({
          ...{ type: 'result', trace_id: ours.trace_id, status: ours.status, seq },
          result: resultOf(ours),
          output_truncated: ours.truncated === true,
        })
      case 'error':
        return line({
          ...{ type: 'result', trace_id: ours.trace_id ?? '', status: 'failed', seq, output_truncated: true },
          result: { success: false, stdout: '', stderr: '', exit_code: -1, error: ours.message },
        })
      default:
        return ''
    }
  }
}

interface Line {
  type: string
  seq?: number
  trace_id?: string
  status?: string
  data?: string
  message?: string
  truncated?: boolean
  success?: boolean
  stdout?: string | null
  stderr?: string | null
  exit_code?: number | null
  error?: string | null
}

/** Its fields must be present and may not be null. */
const resultOf = ({ success = false, stdout, stderr, exit_code: exitCode, error = null }: Line) => ({
  ...{ success, stdout: stdout ?? '', stderr: stderr ?? '', exit_code: exitCode ?? -1, error },
})

/** Returns an execution as that package reads it: a run without a duration yet has lasted 0 ms. */
export const toBaponiExecution = (execution: Readonly<Record<string, unknown>>): Record<string, unknown> => ({
  ...execution,
  duration_ms: Math.round(Number(execution.duration_ms ?? 0)),
})

/** Whether the client names itself as that package, which it does in every request. */
export const isBaponiClient = ({ 'x-client-id': client }: IncomingHttpHeaders): boolean =>
  typeof client === 'string' && client.startsWith('baponi-')
