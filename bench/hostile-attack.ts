import { setTimeout as sleep } from 'node:timers/promises'
import { post } from '../test/support/calls.ts'

/** What the worker thread of a hostile key is started with. */
export interface HostileWork {
  attack: string
  url: string
  port: number
  headers: Record<string, string>
}

/** Requests of the hostile key, and how many of them were refused. */
export interface Tally {
  attempts: number
  refused: number
}

export type Attack = (target: HostileWork, tally: Tally, stop: AbortSignal) => Promise<void>

/** Repeats an attempt from several connections at once. @param attempt returns a status; an error is an attempt that ended early. */
export async function repeat(
  tally: Tally,
  stop: AbortSignal,
  atOnce: number,
  attempt: (worker: number) => Promise<number>,
): Promise<void> {
  const work = async (_: unknown, worker: number) => {
    while (!stop.aborted) {
      tally.attempts += 1
      const status = await attempt(worker).catch(() => 0)
      if (status >= 400) tally.refused += 1
      if (status === 0) await sleep(20)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, work))
}

/** Nothing of an attack runs for longer after its end. */
export const codeSeconds = 3

/** Runs code of the hostile key. @returns the status of the response. */
export async function runCode({ url, headers }: HostileWork, code: string, more: object = {}): Promise<number> {
  const body = { language: 'python', code, timeout: codeSeconds, ...more }
  return (await post(`${url}/v1/sandbox/execute`, body, headers)).status
}
