/**
 * Removes secrets from text before it leaves the server. Takes linear time for any text.
 */
import { findAssignments, findPrivateKeys } from './assignments.ts'
import { type RegisteredSecret, RegisteredSecrets } from './registered.ts'
import { type Finding, findShapes } from './shapes.ts'

/** A text without its secrets, and how many there were by name. */
export interface Redacted {
  text: string
  /** Names in the order of the text, one for each replacement. */
  names: readonly string[]
}

const nothing: readonly string[] = []
/** Names of registered secrets are part of the replacement. */
const safeName = (name: string): string => name.replaceAll(/[^A-Za-z0-9_.-]/g, '_').slice(0, 64)

/** Replaces secrets by `[REDACTED:name]`. Built once for each set of registered secrets. */
export class Redactor {
  readonly #registered: RegisteredSecrets

  constructor(secrets: readonly RegisteredSecret[] = []) {
    this.#registered = new RegisteredSecrets(secrets.map(({ name, value }) => ({ name: safeName(name), value })))
  }

  redact(text: string): Redacted {
    const findings = this.find(text)
    if (findings.length === 0) return { text, names: nothing }
    return replace(text, findings)
  }

  /** Returns a redactor of a text that arrives in pieces; see `StreamRedactor`. */
  stream(): StreamRedactor {
    return new StreamRedactor(this)
  }

  /** Returns what must be replaced: in the order of the text, without overlaps. */
  find(text: string): Finding[] {
    const findings: Finding[] = []
    this.#registered.find(text, findings)
    findPrivateKeys(text, findings)
    findShapes(text, findings)
    findAssignments(text, findings)
    return findings.length < 2 ? findings : withoutOverlaps(findings)
  }

  /** Where a registered secret may begin that continues after the end of the text. */
  holdsBack(text: string): number {
    return this.#registered.holdsBack(text)
  }
}

function withoutOverlaps(findings: Finding[]): Finding[] {
  // Of two that start at the same place, the longer one names the replacement.
  findings.sort((a, b) => a.start - b.start || b.end - a.end)
  const kept: Finding[] = []
  for (const finding of findings) {
    const last = kept.at(-1)
    if (last && finding.start < last.end) last.end = Math.max(last.end, finding.end)
    else kept.push({ ...finding })
  }
  return kept
}

function replace(text: string, findings: readonly Finding[]): Redacted {
  const parts: string[] = []
  let at = 0
  for (const { start, end, name } of findings) {
    parts.push(text.slice(at, start), `[REDACTED:${name}]`)
    at = end
  }
  parts.push(text.slice(at))
  return { text: parts.join(''), names: findings.map(({ name }) => name) }
}

/** Text that a stream holds back at most while it can be the beginning of a secret. */
const heldMax = 65_536
/** Of a longer text without a break, this much is held back. No provider has longer keys. */
const tailMax = 8_192
/** The rest of a line after one of these can be a secret. */
const opensValue = /(?:key|token|secret|passw|pwd|passphrase|credential|connection|authorization|bearer|basic|:\/\/)/i

/**
 * Redacts a text that arrives in pieces. Holds back the end of what has arrived where a secret may be cut in two, at
 * most 64 KiB.
 */
export class StreamRedactor {
  readonly #redactor: Redactor
  #held = ''

  constructor(redactor: Redactor) {
    this.#redactor = redactor
  }

  /** Returns what can be shown now. */
  push(piece: string): Redacted {
    this.#held += piece
    const text = this.#held
    const findings = this.#redactor.find(text)
    let cut = this.#cutOf(text)
    for (const { start, end } of findings) {
      if (start < cut && end > cut) cut = text.length - start > heldMax ? end : start
    }
    const shown = findings.filter(({ end }) => end <= cut)
    this.#held = text.slice(cut)
    return shown.length === 0 ? { text: text.slice(0, cut), names: nothing } : replace(text.slice(0, cut), shown)
  }

  /** Returns the rest, after the last piece. */
  end(): Redacted {
    const rest = this.#redactor.redact(this.#held)
    this.#held = ''
    return rest
  }

  /** Where a text can be cut: before its last word, its last line if that may assign a secret, or an unfinished key. */
  #cutOf(text: string): number {
    const line = text.lastIndexOf('\n') + 1
    const word = Math.max(line, lastBreak(text, line))
    let cut = opensValue.test(text.slice(Math.max(line, text.length - heldMax))) ? line : word
    const begin = text.lastIndexOf('-----BEGIN ')
    if (begin !== -1 && begin < cut && !hasPemEnd(text, begin)) cut = begin
    cut = Math.min(cut, this.#redactor.holdsBack(text))
    return text.length - cut > heldMax ? text.length - tailMax : cut
  }
}

/** Whether the line that ends a key in PEM form is complete: its name contains spaces, at which a text can be cut. */
function hasPemEnd(text: string, begin: number): boolean {
  const end = text.indexOf(pemEnd, begin)
  return end !== -1 && text.indexOf('-----', end + pemEnd.length) !== -1
}

const pemEnd = '-----END '

/** Returns the position after the last white space. */
function lastBreak(text: string, from: number): number {
  for (let at = text.length; at > from; at -= 1) {
    const code = text.charCodeAt(at - 1)
    if (code === 32 || code === 9 || code === 13) return at
  }
  return from
}
