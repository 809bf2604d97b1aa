import { Transform, type TransformCallback } from 'node:stream'

/** A text that an answer must not contain, and what replaces it. */
export interface Replacement {
  from: Buffer
  to: Buffer
}

/** Longer ones first: one can contain another. */
export const inOrder = (replacements: readonly Replacement[]): Replacement[] =>
  [...replacements].sort((a, b) => b.from.length - a.from.length)

/** Replaces texts in a whole text. */
export function masked(text: string, replacements: readonly Replacement[]): string {
  let result = text
  for (const { from, to } of replacements) result = result.replaceAll(from.toString('latin1'), to.toString('latin1'))
  return result
}

/** Replaces texts in a stream, also across its pieces. Holds back only what can be the beginning of one. */
export class Mask extends Transform {
  readonly #replacements: readonly Replacement[]
  #held: Buffer = Buffer.alloc(0)

  /** @param replacements in the order in which they are preferred at the same place. */
  constructor(replacements: readonly Replacement[]) {
    super()
    this.#replacements = replacements
  }

  override _transform(piece: Buffer, _encoding: string, done: TransformCallback): void {
    const bytes = this.#held.length === 0 ? piece : Buffer.concat([this.#held, piece])
    const pieces: Buffer[] = []
    const places = this.#replacements.map((by) => ({ by, at: bytes.indexOf(by.from) }))
    let shownTo = 0
    for (let found = firstOf(places); found !== undefined; found = firstOf(places)) {
      pieces.push(bytes.subarray(shownTo, found.at), found.by.to)
      shownTo = found.at + found.by.from.length
      // Each text is searched for once from each place, so that many echoes of one cost a single pass.
      for (const place of places)
        if (place.at >= 0 && place.at < shownTo) place.at = bytes.indexOf(place.by.from, shownTo)
    }
    const rest = bytes.subarray(shownTo)
    const heldFrom = rest.length - beginningAtEnd(rest, this.#replacements)
    pieces.push(rest.subarray(0, heldFrom))
    this.#held = Buffer.from(rest.subarray(heldFrom))
    const whole = Buffer.concat(pieces)
    if (whole.length > 0) this.push(whole)
    done()
  }

  override _flush(done: TransformCallback): void {
    if (this.#held.length > 0) this.push(this.#held)
    done()
  }
}

interface Found {
  by: Replacement
  /** -1: nowhere. */
  at: number
}

/** Returns the first place; of several at the same one, the first in order. */
function firstOf(places: readonly Found[]): Found | undefined {
  let first: Found | undefined
  for (const place of places) if (place.at >= 0 && (first === undefined || place.at < first.at)) first = place
  return first
}

/** Finds texts in a stream, also across its pieces. */
export class Finder {
  readonly #replacements: readonly Replacement[]
  #held: Buffer = Buffer.alloc(0)

  constructor(texts: readonly Buffer[]) {
    this.#replacements = texts.map((from) => ({ from, to: from }))
  }

  /** @returns whether one of them ends in this piece. */
  find(piece: Buffer): boolean {
    const all = this.#held.length === 0 ? piece : Buffer.concat([this.#held, piece])
    if (this.#replacements.some(({ from }) => all.includes(from))) return true
    this.#held = Buffer.from(all.subarray(all.length - beginningAtEnd(all, this.#replacements)))
    return false
  }
}

/** Returns how many bytes at the end can be the beginning of a text. */
function beginningAtEnd(bytes: Buffer, replacements: readonly Replacement[]): number {
  let longest = 0
  for (const { from } of replacements) {
    for (let length = Math.min(from.length - 1, bytes.length); length > longest; length--) {
      const start = bytes.length - length
      if (bytes[start] === from[0] && bytes.compare(from, 0, length, start) === 0) longest = length
    }
  }
  return longest
}
