import { distance } from 'fastest-levenshtein'

/** Names shorter than this differ by one letter from too many words. */
const longLetters = 6
/** A shorter abbreviation is the beginning of too many words. */
const abbreviationLetters = 3
/** No known name is longer. */
const maxLetters = 64

/**
 * Returns the name that a misspelled one probably means: in another case or with other separators, one or two letters
 * away, or abbreviated. `undefined` where none is close.
 */
export function closestName(given: string, names: readonly string[]): string | undefined {
  if (given.length > maxLetters) return undefined
  const letters = lettersOf(given)
  const ranked = names
    .map((name) => ({ name, away: distanceOf(letters, lettersOf(name)) }))
    .filter(({ away }) => away <= (letters.length < longLetters ? 1 : 2))
    .toSorted((a, b) => a.away - b.away)
  return ranked[0]?.name
}

const lettersOf = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, '')

function distanceOf(given: string, name: string): number {
  if (given.length >= abbreviationLetters && name.startsWith(given)) return 0
  return Math.min(given.length, name.length) < abbreviationLetters && given !== name ? Infinity : distance(given, name)
}
