import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { type Glovebox, Place } from '../support/glovebox.ts'
import { runBare, type Seen, seenAs } from './bare.ts'
import { type Program, readCorpus } from './corpus.ts'
import { differences } from './differences.ts'

const corpus = readCorpus()
const runnable = corpus.filter(({ missing }) => missing === undefined)

/** Programs at a time; the server has as many slots. */
const atOnce = 3

const here = new Map<Program, Seen>()
const bare = new Map<Program, Seen>()
const place = new Place()
let server: Glovebox

async function runBoth(program: Program): Promise<void> {
  const { stdout, stderr, exit_code } = await execute(server.url, program.language, program.code, { timeout: 60 })
  here.set(program, seenAs({ stdout, stderr, code: exit_code }, '/home/baponi'))
  bare.set(program, await runBare(program))
}

beforeAll(async () => {
  server = await place.start('--limit-memory', '512MiB')
  const left = [...runnable]
  const work = async () => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) await runBoth(next)
  }
  await Promise.all(Array.from({ length: atOnce }, work))
}, 300_000)
afterAll(async () => {
  await place.remove()
  expect(server.warnings).toEqual([])
})

describe.each([...new Set(corpus.map(({ language }) => language))])('a program of %s', (language) => {
  const own = runnable.filter((program) => program.language === language)

  it.each(own.map((program) => [program.does, program] as const))('that %s', (does, program) => {
    const difference = differences[`${language}: ${does}`]
    expect(here.get(program)).toEqual({ ...bare.get(program), ...difference?.here })
    // A difference that is gone is no longer listed.
    if (difference) expect(here.get(program)).not.toEqual(bare.get(program))
  })
})

describe('the corpus', () => {
  it('has at least 60 programs of each language, each with its own title', () => {
    for (const languages of [['python'], ['node', 'typescript'], ['bash']]) {
      const titles = corpus.filter((program) => languages.includes(program.language)).map(({ does }) => does)
      expect(titles.length).toBeGreaterThanOrEqual(60)
    }
    expect(new Set(corpus.map(({ language, does }) => `${language}: ${does}`)).size).toBe(corpus.length)
  })

  const missing = corpus.flatMap(({ language, does, missing: reason }) =>
    reason ? [`${language} ${does}: ${reason}`] : [],
  )
  it.skipIf(missing.length > 0)(`has no program that this machine cannot run: ${missing.join('; ')}`, () => {
    expect(missing).toEqual([])
  })
})
