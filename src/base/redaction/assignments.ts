/**
 * Secrets that a name or an address gives away: `PASSWORD=…`, `"api_key": "…"`, `https://user:password@host`, and
 * private keys between PEM lines.
 */
import type { Finding } from './shapes.ts'

/** What a name that promises a secret ends with, in lower case without `_` and `-`. */
const secretName =
  /(?:password|passwd|passphrase|secret|secretkey|token|apikey|accesskey|privatekey|encryptionkey|signingkey|masterkey|credentials?|authkey|accountkey|pwd|connectionstring)$/
/** The last two letters of these and of `authorization`, so that most names are dismissed at once. */
const isLastPair = new Uint8Array(1024)
for (const pair of ['rd', 'wd', 'se', 'et', 'en', 'ey', 'al', 'ls', 'ng', 'on']) {
  isLastPair[pairOf(pair.charCodeAt(0), pair.charCodeAt(1))] = 1
}
const nameMax = 80

/** Whether the value of a variable with this name is a secret. */
export const isSecretName = (name: string): boolean => secretName.test(name.toLowerCase().replaceAll(/[_-]/g, ''))

/** A value without quotes, as a shell, a `.env` file and `env` write it. */
const bareValue = /[^\s"'`$()[\]{}<>&|;,\\]{1,4096}/y
const lineEnd = /[ \t]*(?:[\r\n]|$)/y
const quotedValue = /[ \t]{0,8}(?:b|r)?\\?(["'`])((?:(?!\1)[^\\\r\n]){8,4096})\\?\1/y
const headerValue = /[ \t]{0,8}["'`]?(?:bearer|basic|token|digest|apikey)[ \t]{1,8}([A-Za-z0-9._~+/=:-]{8,4096})/iy
const addressCredentials = /\/\/([^\s/@:"'`<>\\?#]{0,256}):([^\s/@"'`<>\\]{1,1024})@(?=[\w.[-])/y

/** What replaces a secret in documentation. */
const placeholder =
  /^(?:[xX*.•-]+|.*(?:example|placeholder|your[-_]|changeme|dummy|redacted|undefined).*|null|none|true|false)$/i
/** The passwords of addresses in documentation. */
const exampleWord = /^(?:pass|password|passwd|pwd|secret|token|guest|user|foo|bar|pw|xxx)$/i
const onlyLetters = /^[A-Za-z]+$/
const onlyNumber = /^[0-9.]{1,12}$/
const hasLetter = /[A-Za-z]/
const hasDigit = /[0-9]/
/** Parts of a program: calls, members, paths, interpolations, conversions, words that are joined. */
const isCode = /[(){}[\]\s]|^[./~@#%$<]|:\/\/|%[sdv]|^\w+\.[.\w]+$|^[A-Za-z]+[0-9]{0,2}(?:[-_/:.][A-Za-z]+[0-9]{0,2})+$/

/** Finds assignments to names that promise a secret, and credentials in addresses. */
export function findAssignments(text: string, findings: Finding[]): void {
  for (let at = text.indexOf('='); at !== -1; at = text.indexOf('=', at + 1)) {
    const next = text.charCodeAt(at + 1)
    // Comparisons
    if (next === 61 || isComparison(text.charCodeAt(at - 1))) continue
    at = findValue(text, at, next === 62 ? at + 2 : at + 1, findings)
  }
  for (let at = text.indexOf(':'); at !== -1; at = text.indexOf(':', at + 1)) {
    const next = text.charCodeAt(at + 1)
    if (next === 47) findCredentials(text, at, findings)
    else if (next === 61 || next === 58) at += 1
    else at = findValue(text, at, at + 1, findings)
  }
}

const isComparison = (code: number): boolean => code === 61 || code === 33 || code === 60 || code === 62

function findCredentials(text: string, at: number, findings: Finding[]): void {
  if (text.charCodeAt(at + 2) !== 47 || !/[A-Za-z0-9]/.test(text[at - 1] ?? '')) return
  const match = stickyMatch(addressCredentials, text, at + 1)
  if (!match || /^(?:[${]|%s)/.test(match[2]!) || placeholder.test(match[2]!)) return
  if (exampleWord.test(match[2]!)) return
  const start = at + 3 + match[1]!.length + 1
  findings.push({ start, end: start + match[2]!.length, name: 'url-password' })
}

/**
 * @param at where `=` or `:` is.
 * @param after where the value begins.
 * @returns where the search continues: no value is read twice.
 */
function findValue(text: string, at: number, after: number, findings: Finding[]): number {
  let end = at
  // In `"name": value` and `name := value`
  while (end > 0 && isSpacer(text.charCodeAt(end - 1)) && at - end < 4) end -= 1
  if (isLastPair[pairOf(text.charCodeAt(end - 2), text.charCodeAt(end - 1))] !== 1) return at
  let start = end
  while (start > 0 && end - start < nameMax && isNamePart(text.charCodeAt(start - 1))) start -= 1
  const name = text.slice(start, end)
  const plain = name.toLowerCase().replaceAll(/[_-]/g, '')
  if (plain.endsWith('authorization')) {
    pushGroup(headerValue, 1, 'authorization', text, after, findings)
    return at
  }
  if (!secretName.test(plain)) return at
  const quoted = stickyMatch(quotedValue, text, after)
  if (quoted) {
    const valueEnd = after + quoted[0].lastIndexOf(quoted[2]!) + quoted[2]!.length
    return pushLiteral(text, valueEnd - quoted[2]!.length, valueEnd, findings)
  }
  const isVariable = end === at && text[at] === '=' && /^[A-Z][A-Z0-9_]*$/.test(name)
  return findBare(text, at, after, isVariable, plain.endsWith('token'), findings)
}

/** @param isVariable it is written like a variable of a shell, where any value may be a secret. */
function findBare(
  text: string,
  at: number,
  after: number,
  isVariable: boolean,
  isToken: boolean,
  findings: Finding[],
): number {
  let start = after
  while (start - after < 8 && isBlank(text.charCodeAt(start))) start += 1
  const value = stickyMatch(bareValue, text, start)?.[0]
  if (value === undefined) return at
  const end = start + value.length
  if (isVariable && start === after) {
    const isHarmless = value.length < 4 || placeholder.test(value) || isReference(value) || text[end] === '('
    if (!isHarmless && !(isToken && onlyNumber.test(value))) {
      findings.push({ start, end, name: 'secret-assignment' })
    }
    return end - 1
  }
  lineEnd.lastIndex = end
  return lineEnd.test(text) ? pushLiteral(text, start, end, findings) : end - 1
}

const isReference = (value: string): boolean => /^[./~]|:\/\/|^\w+\.[A-Za-z_]\w*$/.test(value)

/** Keeps a literal that looks like a word, a number or a part of a program. */
function pushLiteral(text: string, start: number, end: number, findings: Finding[]): number {
  const value = text.slice(start, end)
  const isHarmless =
    value.length < 8 ||
    onlyLetters.test(value) ||
    onlyNumber.test(value) ||
    placeholder.test(value) ||
    isCode.test(value)
  if (!isHarmless && hasLetter.test(value) && hasDigit.test(value)) {
    findings.push({ start, end, name: 'secret-assignment' })
  }
  return end - 1
}

function pushGroup(shape: RegExp, group: number, name: string, text: string, at: number, findings: Finding[]): void {
  const match = stickyMatch(shape, text, at)
  const value = match?.[group]
  // `Bearer my-token` is documentation.
  if (!match || value === undefined || (value.length < 24 && !hasDigit.test(value))) return
  const end = at + match[0].length
  findings.push({ start: end - value.length, end, name })
}

function stickyMatch(shape: RegExp, text: string, at: number): RegExpExecArray | null {
  shape.lastIndex = at
  return shape.exec(text)
}

/** The same for both cases of a letter; other characters can have the pair of letters. */
function pairOf(first: number, second: number): number {
  return ((first & 31) << 5) | (second & 31)
}

const isBlank = (code: number): boolean => code === 32 || code === 9
/** Space, tab, quotes, a bracket, a backslash before a quote, and the colon of `:=`. */
const isSpacer = (code: number): boolean =>
  isBlank(code) || code === 34 || code === 39 || code === 58 || code === 93 || code === 92
const isNamePart = (code: number): boolean =>
  (code >= 97 && code <= 122) || (code >= 65 && code <= 90) || (code >= 48 && code <= 57) || code === 95 || code === 45

const pemBegin = '-----BEGIN '
const pemLabel = /[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----/y
/** Lines of a key whose end is missing. */
/** Characters after the first line; the shortest key has 64 of base64. */
const pemBodyMin = 60
const pemBody = /(?:[A-Za-z0-9+/=\s:,-]|\\[nrt]){0,16384}/y

/** Finds private keys between their PEM lines. A key without its last line ends with its base64. */
export function findPrivateKeys(text: string, findings: Finding[]): void {
  let endsAfter = 0
  for (let at = text.indexOf(pemBegin); at !== -1; at = text.indexOf(pemBegin, at + pemBegin.length)) {
    const label = stickyMatch(pemLabel, text, at + pemBegin.length)
    if (!label) continue
    const bodyAt = at + pemBegin.length + label[0].length
    // No search goes further than the one before it, so that many beginnings cost one pass.
    if (endsAfter !== -1 && endsAfter < bodyAt) endsAfter = text.indexOf('-----END ', bodyAt)
    const footer = endsAfter === -1 ? undefined : text.indexOf('-----', endsAfter + 9)
    const end =
      footer !== undefined && footer !== -1 && footer - endsAfter < 80 && endsAfter - bodyAt < 65_536
        ? footer + 5
        : bodyAt + (stickyMatch(pemBody, text, bodyAt)?.[0].length ?? 0)
    // The line alone, in a program that reads keys
    if (end - bodyAt < pemBodyMin) continue
    findings.push({ start: at, end, name: 'private-key' })
    at = Math.max(at, end - pemBegin.length)
  }
}
