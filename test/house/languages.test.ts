import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { languages } from '../../src/base/run.ts'

/** Files that depend on the languages without a `Record<Language, …>`, which the compiler checks. */
const places: readonly [file: string, what: string][] = [
  ['README.md', 'the languages that the product offers'],
  ['bench/machine.ts', 'the version of its interpreter in results'],
  ['setup/steps.sh', 'where its interpreter comes from'],
  ['src/cli/run.ts', 'its file extensions and interpreter lines'],
  ['test/stories/languages.test.ts', 'its messages, exit codes and standard input'],
]

const root = new URL('../../', import.meta.url)

/** Returns the places that do not mention a language. */
const missing = (language: string): string[] =>
  places
    .filter(([file]) => !new RegExp(`\\b${language}\\d*\\b`, 'i').test(readFileSync(new URL(file, root), 'utf8')))
    .map(([file, what]) => `${file}: ${what}`)

describe('a language', () => {
  it.each(languages)('%s is handled in every place that depends on the language', (language) => {
    expect(missing(language)).toEqual([])
  })

  it('is missing in every place before it is added', () => {
    expect(missing('cobol')).toHaveLength(places.length)
  })
})
