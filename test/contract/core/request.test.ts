import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Refusal } from '../../../src/base/errors.ts'
import type { Profile } from '../../../src/base/profile.ts'
import { reservedPrefixes, reservedVariables } from '../../../src/core/access/variables.ts'
import { check, codeLimitBytes, type ExecuteRequest } from '../../../src/core/runs/request.ts'
import { testProfile } from '../../support/front.ts'

const callerOf = (profile: Profile) => ({ profile, env: {} })
const asked = (request: Partial<ExecuteRequest>) =>
  check(callerOf(testProfile), { code: 'x', detached: true, ...request })

function refusalOf(request: Partial<ExecuteRequest>): Refusal {
  try {
    asked(request)
  } catch (error) {
    if (error instanceof Refusal) return error
    throw error
  }
  throw new Error('the request was not refused')
}

describe('an omitted field', () => {
  it('is taken from the profile', () => {
    expect(asked({})).toMatchObject({
      language: 'python',
      timeoutMs: 10_000,
      env: { FROM_PROFILE: 'profile' },
      metadata: null,
    })
    expect(asked({}).input.stdin).toBeUndefined()
  })

  it('differs from an empty one', () => {
    expect(asked({ stdin: '' }).input.stdin).toHaveLength(0)
    expect(asked({ metadata: {} }).metadata).toBe('{}')
  })
})

describe('code', () => {
  it('can be up to a megabyte', () => {
    expect(asked({ code: 'a'.repeat(codeLimitBytes) }).input.code).toHaveLength(codeLimitBytes)
    expect(refusalOf({ code: 'a'.repeat(codeLimitBytes + 1) })).toMatchObject({
      code: 'code_too_large',
      details: { bytes: codeLimitBytes + 1, limitBytes: codeLimitBytes },
    })
  })

  it('is counted in bytes, not in characters', () => {
    expect(refusalOf({ code: '€'.repeat(codeLimitBytes / 2) }).code).toBe('code_too_large')
  })

  it('must not be empty or contain a lone surrogate', () => {
    expect(refusalOf({ code: '' }).code).toBe('code_empty')
    expect(refusalOf({ code: 'print("\ud800")' }).message).toContain('code holds a lone surrogate')
    expect(refusalOf({ stdin: '\udfff' }).message).toContain('stdin holds a lone surrogate')
  })
})

describe('the timeout', () => {
  it('is rejected above the maximum of the profile, which is named', () => {
    expect(asked({ timeoutSeconds: 60 }).timeoutMs).toBe(60_000)
    expect(refusalOf({ timeoutSeconds: 61 }).message).toBe('timeout is 61 s; the maximum in this profile is 60 s.')
  })

  it('is a whole number of seconds from one on', () => {
    for (const timeoutSeconds of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(refusalOf({ timeoutSeconds }).message).toContain('timeout must be whole seconds')
    }
  })
})

describe('the language', () => {
  it('must be offered by the profile', () => {
    expect(refusalOf({ language: 'ruby' }).message).toBe(
      "Language 'ruby' is not available in this profile. Available languages: python, node, typescript, bash.",
    )
    const bashOnly = { ...testProfile, languages: ['bash'] as const, defaultLanguage: 'bash' as const }
    expect(() => check(callerOf(bashOnly), { code: 'x', language: 'python', detached: true })).toThrow(
      'Available languages: bash',
    )
  })
})

describe('a thread', () => {
  it('is rejected when the profile has no storage', () => {
    expect(refusalOf({ threadId: 'a' }).code).toBe('threads_unavailable')
  })

  it('has a name that is safe in paths and URLs, case preserved', () => {
    const storage = { kind: 'threads', quota: { bytes: 8 * 1024 * 1024, inodes: 64 }, retentionDays: null } as const
    const named = (threadId: string) =>
      check(callerOf({ ...testProfile, storage }), { code: 'x', detached: true, threadId })
    for (const id of ['a', 'Analysis-session_42.b', '0', `x${'y'.repeat(127)}`]) {
      expect(named(id).thread).toEqual({ id, quota: storage.quota, profile: 'default' })
    }
    for (const id of ['', '.', '..', '-a', '_a', '.a', 'a/b', 'a\0', 'a b', 'ä', 'a\n', `x${'y'.repeat(128)}`]) {
      expect(() => named(id), id).toThrow(/thread_id must be 1 to 128 letters/)
    }
  })
})

describe('metadata', () => {
  it('is an object of at most 16 KiB as JSON', () => {
    expect(asked({ metadata: { a: [1, { b: null }] } }).metadata).toBe('{"a":[1,{"b":null}]}')
    expect(refusalOf({ metadata: { a: 'x'.repeat(16 * 1024) } }).message).toContain('metadata is 16392 bytes')
    for (const metadata of [[], 'text', 1, null]) expect(refusalOf({ metadata }).message).toContain('must be an object')
  })
})

describe('environment variables', () => {
  it('override those of the profile', () => {
    expect(asked({ env: { FROM_PROFILE: 'call', LANG: 'C' } }).env).toEqual({ FROM_PROFILE: 'call', LANG: 'C' })
  })

  it('are rejected by name when the sandbox or an interpreter interprets them', () => {
    const names = [...reservedVariables, ...reservedPrefixes.map((prefix) => `${prefix}X`)]
    for (const name of names) {
      expect(refusalOf({ env: { [name]: 'x' } }).message).toBe(
        `env_vars["${name}"] is reserved by the sandbox and cannot be set.`,
      )
    }
  })

  it('have names of uppercase letters, digits and underscores', () => {
    const names = ['', 'a', 'aB', '1A', '_A', 'A-B', 'A B', 'A=B', 'Ä', 'A\n', 'A\0', '__proto__', 'constructor']
    for (const name of names) {
      const env = Object.fromEntries([[name, 'x']])
      expect(refusalOf({ env }).message).toContain('is not a valid name')
    }
    expect(refusalOf({ env: { [`A${'B'.repeat(128)}`]: 'x' } }).message).toContain('a name of 129 characters')
  })

  it('have values that are text without NUL, of at most 32 KiB', () => {
    expect(refusalOf({ env: { A: 1 } }).message).toBe('env_vars.A must be a string; it is number.')
    expect(refusalOf({ env: { A: null } }).message).toContain('it is null')
    expect(refusalOf({ env: { A: 'a\0' } }).message).toContain('NUL')
    expect(refusalOf({ env: { A: '\ud800' } }).message).toContain('lone surrogate')
    expect(refusalOf({ env: { A: 'x'.repeat(32 * 1024 + 1) } }).message).toContain('is 32769 bytes')
  })

  it('are limited to 64 and 128 KiB in total', () => {
    const many = (count: number, value: string) =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`V${index}`, value]))
    expect(Object.keys(asked({ env: many(64, '') }).env)).toHaveLength(65)
    expect(refusalOf({ env: many(65, '') }).message).toContain('contains 65 variables')
    expect(refusalOf({ env: many(5, 'x'.repeat(32 * 1024)) }).message).toContain('bytes in total')
  })

  it('are either accepted unchanged or rejected, for arbitrary input', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.anything()), (env) => {
        try {
          expect(asked({ env }).env).toEqual({ FROM_PROFILE: 'profile', ...env })
        } catch (error) {
          expect(error).toBeInstanceOf(Refusal)
        }
      }),
    )
  })
})
