import { type RefusalKind, type RefusalStatus, refusalKinds } from './refusal-kinds.ts'
import { refusalTexts } from './refusals.ts'

export type RefusalCode = keyof typeof refusalTexts

/** A refusal with the status and the codes of its kind. */
export interface RefusalRow extends RefusalStatus {
  kind: RefusalKind
  message: string
  hint: string
}

/** Every refusal by its code. */
export const refusals = Object.fromEntries(
  Object.entries(refusalTexts).map(([code, text]) => [code, { ...text, ...refusalKinds[text.kind] }]),
) as Readonly<Record<RefusalCode, RefusalRow>>

/** Values for the placeholders of a message and its hint. */
export type Details = Readonly<Record<string, string | number | readonly string[]>>

/**
 * An error that the caller can act on: the request is not served as it is. The result of a run is not a refusal but
 * an ending (`base/run.ts`); any other error is a fault, and the caller gets only its ID.
 */
export class Refusal extends Error {
  readonly code: RefusalCode
  readonly details: Details
  readonly hint: string

  constructor(code: RefusalCode, details: Details = {}) {
    super(filled(refusals[code].message, details))
    this.name = 'Refusal'
    this.code = code
    this.details = details
    this.hint = filled(refusals[code].hint, details)
  }

  get row(): RefusalRow {
    return refusals[this.code]
  }
}

/** Replaces each `{name}` of a template by the detail of that name, in one pass: details are never expanded again. */
function filled(template: string, details: Details): string {
  return template.replaceAll(/\{(\w+)\}/g, (placeholder, name: string) => {
    const value = details[name]
    return value === undefined ? placeholder : Array.isArray(value) ? value.join(', ') : String(value)
  })
}

/** The product cannot start with this configuration or on this machine. The remedy states how to fix it. */
export class StartRefused extends Error {
  readonly remedy: string

  constructor(reason: string, remedy: string) {
    super(reason)
    this.name = 'StartRefused'
    this.remedy = remedy
  }
}

/** What is wrong with one setting. */
export interface SettingProblem {
  setting: string
  problem: string
}

/** Some settings of a profile cannot be used. Names all of them, not only the first one. */
export class ProfileRefused extends StartRefused {
  readonly problems: readonly SettingProblem[]

  constructor(problems: readonly SettingProblem[], remedy: string) {
    super(problems.map(({ problem }) => problem).join(' '), remedy)
    this.name = 'ProfileRefused'
    this.problems = problems
  }
}
