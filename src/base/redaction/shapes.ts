/**
 * Secrets that have a shape of their own, such as the keys of providers. All are words of the characters
 * `A–Z a–z 0–9 _ -` with at least `wordMin` characters, so a scan for long words finds every candidate.
 */

/** A part of a text that must not be shown. */
export interface Finding {
  start: number
  end: number
  /** What it is; shown in its place. */
  name: string
}

/** The shortest secret with a shape: an AWS access key. */
export const wordMin = 20

/**
 * Each starts where no letter or digit precedes it. None backtracks over more than its own word, so a scan stays
 * linear. A more specific prefix comes before a more general one.
 */
const shapes: readonly [name: string, source: string][] = [
  ['aws-access-key', '(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])'],
  ['github-fine-grained-pat', 'github_pat_[A-Za-z0-9_]{40,}'],
  ['github-pat', 'ghp_[A-Za-z0-9]{36,}'],
  ['github-oauth', 'gh[ousr]_[A-Za-z0-9]{36,}'],
  ['gitlab-token', 'gl(?:pat|dt|rt|cbt|ptt|soat)-[A-Za-z0-9_-]{20,}'],
  ['anthropic-api-key', 'sk-ant-[A-Za-z0-9_-]{20,}'],
  ['openai-api-key', 'sk-(?=[A-Za-z_-]{0,64}[0-9])(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{20,}'],
  ['google-api-key', 'AIza[0-9A-Za-z_-]{35}(?![0-9A-Za-z])'],
  ['slack-token', '(?:xox[abeprs]|xapp)-(?=[A-Za-z-]{0,64}[0-9])[A-Za-z0-9-]{15,}'],
  ['stripe-live-key', '(?:sk|rk)_live_[A-Za-z0-9]{24,}'],
  ['webhook-secret', 'whsec_[A-Za-z0-9_-]{24,}'],
  ['npm-token', 'npm_[A-Za-z0-9]{36}(?![0-9A-Za-z])'],
  ['pypi-token', 'pypi-AgE[A-Za-z0-9_-]{50,}'],
  ['hugging-face-token', 'hf_[A-Za-z0-9]{34}(?![0-9A-Za-z])'],
  ['docker-token', 'dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}'],
  ['digitalocean-token', 'do[opr]_v1_[a-f0-9]{64}(?![0-9A-Za-z])'],
  ['shopify-token', 'shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}(?![0-9A-Za-z])'],
  ['groq-api-key', 'gsk_[A-Za-z0-9]{40,}'],
  ['microsandbox-key', 'msb_[A-Za-z0-9_.-]{20,}'],
  ['glovebox-token', 'gba_[A-Za-z0-9_-]{20,}'],
]

const inWord = new RegExp(`(?<![A-Za-z0-9_])(?:${shapes.map(([, source]) => `(${source})`).join('|')})`, 'g')
/** Dismisses most long words at once. */
const mayHoldOne =
  /AKIA|ASIA|AIza|(?:gh[pousr]|github_pat|live|whsec|npm|hf|dckr_[po]at|do[opr]_v1|shp..|gsk|gba)_|(?:sk|gl[a-z]{2,4}|xox.|xapp|pypi)-/

const jwt = /eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}/y
const sendGrid = /[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{30,}/y
const authorization = /[A-Za-z0-9._~+/-]{20,}={0,2}/y
const afterScheme = /(?:^|[^A-Za-z])(?:bearer|basic)[ \t]{1,4}$/i

const isWordCode = new Uint8Array(256)
for (const character of 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-') {
  isWordCode[character.charCodeAt(0)] = 1
}
/** Beyond Latin-1 nothing belongs to a word. */
const isWord = (code: number): boolean => isWordCode[code] === 1

/**
 * Finds secrets by their shape. Looks at every `wordMin`-th character: a long enough word contains one of these, and
 * most of a usual text is skipped.
 */
export function findShapes(text: string, findings: Finding[]): void {
  const { length } = text
  let previousEnd = 0
  for (let at = wordMin - 1; at < length; at += wordMin) {
    if (!isWord(text.charCodeAt(at))) continue
    let start = at
    while (start > previousEnd && isWord(text.charCodeAt(start - 1))) start -= 1
    let end = at + 1
    while (end < length && isWord(text.charCodeAt(end))) end += 1
    if (end - start >= wordMin) findInWord(text, start, end, findings)
    previousEnd = end
    at = end
  }
  findTokens(text, findings)
}

function findInWord(text: string, start: number, end: number, findings: Finding[]): void {
  const word = text.slice(start, end)
  if (mayHoldOne.test(word)) {
    for (const match of word.matchAll(inWord)) {
      const name = shapes[match.slice(1).findIndex((group) => group !== undefined)]![0]
      findings.push({ start: start + match.index, end: start + match.index + match[0].length, name })
    }
  }
  if (text[start - 1] === '.' && text.slice(start - 3, start) === 'SG.') {
    const found = stickyEnd(sendGrid, text, start)
    if (found !== undefined) findings.push({ start: start - 3, end: found, name: 'sendgrid-api-key' })
  }
  const before = text.charCodeAt(start - 1)
  if ((before === 32 || before === 9) && afterScheme.test(text.slice(Math.max(0, start - 12), start))) {
    pushSticky(authorization, 'authorization', text, start, findings)
  }
}

/** Finds JSON Web Tokens, whose first part can be shorter than `wordMin`. */
function findTokens(text: string, findings: Finding[]): void {
  for (let dot = text.indexOf('.eyJ'), floor = 0; dot !== -1; dot = text.indexOf('.eyJ', dot + 4)) {
    let start = dot
    while (start > floor && isWord(text.charCodeAt(start - 1))) start -= 1
    floor = dot + 1
    const first = text.indexOf('eyJ', start)
    if (first < dot && first !== -1) pushSticky(jwt, 'jwt', text, first, findings)
  }
}

function pushSticky(shape: RegExp, name: string, text: string, start: number, findings: Finding[]): void {
  const end = stickyEnd(shape, text, start)
  if (end !== undefined) findings.push({ start, end, name })
}

function stickyEnd(shape: RegExp, text: string, start: number): number | undefined {
  shape.lastIndex = start
  return shape.test(text) ? shape.lastIndex : undefined
}
