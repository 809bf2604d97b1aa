import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { settingNames } from '../../src/settings.ts'

const page = readFileSync(new URL('../../docs/limits.md', import.meta.url), 'utf8')

/** What the names of settings that limit something have in common. */
const limitName = /^(?:limit|output|max|buffer)_|_max(?:_|$)|_per_|_reserve$|_rate$|^queue_/
/** They determine when a slot is replaced, which nothing that a client does runs into. */
const notLimits = ['slot_max_runs', 'interpreter_max_age_s']

const limits = (names: readonly string[]): string[] =>
  names.filter((name) => limitName.test(name) && !notLimits.includes(name))

describe('a setting that is a limit', () => {
  it.each(limits(settingNames))('%s has a row in docs/limits.md', (name) => {
    expect(page).toMatch(new RegExp(`^\\|.*\`${name}\``, 'm'))
  })

  it('is found by its name', () => {
    expect(limits(['limit_new', 'new_max', 'new_per_key', 'host', 'drain_s'])).toEqual([
      'limit_new',
      'new_max',
      'new_per_key',
    ])
  })
})
