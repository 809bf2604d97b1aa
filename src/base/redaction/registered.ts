/**
 * Secrets that are known by their value: finds them in a text as they are, and as base64, hexadecimal digits, a part of
 * a URL or of a JSON string.
 */
import type { Finding } from './shapes.ts'

export interface RegisteredSecret {
  name: string
  value: string
}

/** A shorter value occurs in texts by chance. */
export const registeredMin = 6
/** Values of one organization that are searched, in characters: a table of them is built for each key. */
export const registeredMaxTotal = 1_048_576

/** Characters of a needle that are hashed; the table has one entry for each pair of them. */
const block = 2
const tableSize = 1 << 14

/** Searches many texts at once (Wu and Manber, 1994): most characters are skipped without being looked at. */
export class RegisteredSecrets {
  /** The longest form that is searched. */
  readonly longest: number
  readonly #shortest: number
  readonly #shifts = new Uint8Array(tableSize)
  readonly #needles = new Map<number, { needle: string; name: string }[]>()

  constructor(secrets: readonly RegisteredSecret[]) {
    const needles = secrets.flatMap(({ name, value }) => formsOf(value).map((needle) => ({ needle, name })))
    this.#shortest = Math.min(255 + block - 1, ...needles.map(({ needle }) => needle.length))
    this.longest = Math.max(0, ...needles.map(({ needle }) => needle.length))
    if (needles.length > 0) this.#build(needles)
  }

  /** Names of first characters at which a needle could start and continue after the end of a text. */
  holdsBack(text: string): number {
    let from = text.length
    for (const entries of this.#needles.values()) {
      for (const { needle } of entries) {
        const start = Math.max(0, text.length - needle.length + 1)
        for (let at = text.indexOf(needle[0]!, start); at !== -1 && at < from; at = text.indexOf(needle[0]!, at + 1)) {
          if (needle.startsWith(text.slice(at))) from = at
        }
      }
    }
    return from
  }

  find(text: string, findings: Finding[]): void {
    const shortest = this.#shortest
    const shifts = this.#shifts
    if (this.#needles.size === 0) return
    const { length } = text
    for (let at = shortest - 1; at < length; ) {
      const hash = hashOf(text.charCodeAt(at - 1), text.charCodeAt(at))
      const shift = shifts[hash]!
      if (shift > 0) at += shift
      else {
        const start = at - shortest + 1
        const found = this.#needles.get(hash)?.find(({ needle }) => text.startsWith(needle, start))
        if (found) findings.push({ start, end: start + found.needle.length, name: found.name })
        at += 1
      }
    }
  }

  #build(needles: readonly { needle: string; name: string }[]): void {
    const shortest = this.#shortest
    this.#shifts.fill(shortest - block + 1)
    for (const entry of needles) {
      const { needle } = entry
      for (let end = block - 1; end < shortest; end += 1) {
        const hash = hashOf(needle.charCodeAt(end - 1), needle.charCodeAt(end))
        this.#shifts[hash] = Math.min(this.#shifts[hash]!, shortest - 1 - end)
      }
      const hash = hashOf(needle.charCodeAt(shortest - 2), needle.charCodeAt(shortest - 1))
      // The longest first: it is replaced as a whole.
      const entries = this.#needles.get(hash) ?? []
      entries.push(entry)
      this.#needles.set(
        hash,
        entries.sort((a, b) => b.needle.length - a.needle.length),
      )
    }
  }
}

const hashOf = (first: number, second: number): number => ((first << 7) ^ second) & (tableSize - 1)

/** Returns the texts in which a value can occur, without repetition. */
export function formsOf(value: string): string[] {
  if (value.length < registeredMin) return []
  const bytes = Buffer.from(value, 'utf8')
  const hex = bytes.toString('hex')
  const urlForm = encodeURIComponent(value.toWellFormed())
  const base64 = [0, 1, 2].flatMap((shift) => {
    const encoded = base64Within(bytes, shift)
    return [encoded, encoded.replaceAll('+', '-').replaceAll('/', '_')]
  })
  const forms = [
    value,
    hex,
    hex.toUpperCase(),
    urlForm,
    urlForm.replaceAll(/%[0-9A-F]{2}/g, (code) => code.toLowerCase()),
    urlForm.replaceAll('%20', '+'),
    JSON.stringify(value).slice(1, -1),
    ...base64,
  ]
  return [...new Set(forms)].filter((form) => form.length >= registeredMin)
}

/** The characters of a base64 text that depend on nothing but these bytes, where `shift` bytes precede them. */
function base64Within(bytes: Buffer, shift: number): string {
  const encoded = Buffer.concat([Buffer.alloc(shift), bytes])
    .toString('base64')
    .replace(/=+$/, '')
  const first = Math.ceil((shift * 8) / 6)
  const last = Math.floor(((shift + bytes.length) * 8) / 6)
  return encoded.slice(first, last)
}
