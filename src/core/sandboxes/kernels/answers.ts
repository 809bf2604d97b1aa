import { constants } from 'node:os'
import { parseForeignJson } from '../../../base/json.ts'
import type { ProcessEnding } from '../../../base/sandbox.ts'
import type { Display } from './calls.ts'

/** What a kernel says at the end of a call. */
export type Answer =
  | { kind: 'completed'; exitCode?: number }
  | { kind: 'raised'; name: string; message: string; traceback: string }
  | { kind: 'exited'; code: number }
  | { kind: 'interrupted'; traceback: string }

const textMax = 256 * 1024

/** BOUNDARY: reads JSON that a kernel, or the code that it runs, has sent. @returns undefined unless it is an object. */
function parseObject(payload: Buffer): Record<string, unknown> | undefined {
  try {
    const value = parseForeignJson(payload)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined
  } catch {
    return undefined
  }
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value.slice(0, textMax) : '')

const codeOf = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 255 ? value : undefined

/** Reads the payload of `ended`; anything that is not specified there counts as completed. */
export function parseAnswer(payload: Buffer): Answer {
  const { error, exited, exitCode, interrupted, traceback } = parseObject(payload) ?? {}
  if (interrupted === true) return { kind: 'interrupted', traceback: textOf(traceback) }
  const code = codeOf(exited)
  if (code !== undefined) return { kind: 'exited', code }
  if (typeof error === 'object' && error !== null) {
    const { name, message, traceback: trace } = error as Record<string, unknown>
    return { kind: 'raised', name: textOf(name), message: textOf(message), traceback: textOf(trace) }
  }
  const status = codeOf(exitCode)
  return { kind: 'completed', ...(status !== undefined && { exitCode: status }) }
}

const mediaTypePattern = /^[a-z0-9][a-z0-9.+-]{0,63}\/[a-z0-9][a-z0-9.+-]{0,63}$/i
const representationsMax = 16

/** Reads the payload of `display`. @returns undefined if it shows nothing. */
export function parseDisplay(payload: Buffer): { data: Display; isResult: boolean } | undefined {
  const { data, base64, result } = parseObject(payload) ?? {}
  if (typeof data !== 'object' || data === null) return undefined
  const encoded = new Set(Array.isArray(base64) ? base64 : [])
  const shown = Object.entries(data)
    .filter(([type, content]) => mediaTypePattern.test(type) && typeof content === 'string')
    .slice(0, representationsMax)
    .map(([type, content]) => [type, encoded.has(type) ? Buffer.from(content, 'base64') : content])
  return shown.length > 0 ? { data: Object.fromEntries(shown), isResult: result === true } : undefined
}

/** Reads the payload of `restored`: how the kernel ended that a copy has replaced. */
export function parseRestored(payload: Buffer): ProcessEnding {
  const { exited, signal } = parseObject(payload) ?? {}
  const name = Object.entries(constants.signals).find(([, number]) => number === signal)?.[0]
  return name === undefined
    ? { kind: 'exited', code: codeOf(exited) ?? 0 }
    : { kind: 'signaled', signal: name.slice('SIG'.length) }
}

const lostMax = 16

/** Reads the payload of `rewound`. @returns what was not rewound, or why nothing was. */
export function parseRewound(payload: Buffer): { lost: string[] } | { error: string } {
  const { error, lost } = parseObject(payload) ?? {}
  if (error !== undefined) return { error: textOf(error).slice(0, 200) }
  const known = Array.isArray(lost) ? lost.filter((item): item is string => typeof item === 'string') : []
  return { lost: known.slice(0, lostMax).map((item) => item.slice(0, 100)) }
}
