/** Glob patterns, as in a shell: `*`, `?`, `[…]`, `{a,b}`, and `**` for any number of directories. */

const special = /[*?[\]{}]/

export const isGlob = (path: string): boolean => special.test(path)

/** The directories at the start of a pattern that contain no special character. */
export function literalPrefix(pattern: string): string {
  const segments = pattern.split('/')
  const at = segments.findIndex((segment) => special.test(segment))
  // A brace may contain slashes, so a segment before the first special character is always literal.
  return segments.slice(0, at === -1 ? -1 : at).join('/')
}

/** The part of a match that is kept at its destination: what follows the literal directories of its pattern. */
export function targetOf(path: string, pattern: string): string {
  const prefix = literalPrefix(pattern)
  return prefix === '' ? path : path.slice(prefix.length + 1)
}
