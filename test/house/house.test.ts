import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { pages } from '../../setup/pages.ts'
import { rules } from './rules.ts'
import { type Problem, readTree, type Tree } from './tree.ts'

const tree = readTree(fileURLToPath(new URL('../../', import.meta.url)))
const formatted = (problems: Problem[]) => problems.map(({ path, line, problem }) => `${path}:${line} ${problem}`)

describe('this repository', () => {
  for (const [sentence, rule] of Object.entries(rules)) {
    it(sentence, () => {
      expect(formatted(rule(tree))).toEqual([])
    })
  }

  for (const [path, text] of Object.entries(pages())) {
    it(`contains the generated page ${path}`, () => {
      expect(tree.get(path)).toBe(text)
    })
  }
})

describe('each rule rejects a bad example', () => {
  const found = (sentence: string, files: Record<string, string>): string[] => {
    const rule = rules[sentence]
    if (!rule) throw new Error(`no rule "${sentence}"`)
    return formatted(rule(new Map(Object.entries(files)) as Tree))
  }
  const checked = new Set<string>()

  const cases: [sentence: string, bad: Record<string, string>, expected: RegExp][] = [
    [
      'imports follow the table',
      { 'src/store/a.ts': "import { b } from '../engine/b.ts'" },
      /store may not import engine/,
    ],
    [
      'imports follow the table',
      { 'src/base/a.ts': "export * from '../observe/log.ts'" },
      /base may not import observe/,
    ],
    ['imports follow the table', { 'src/http/a.ts': "await import('../engine/b.ts')" }, /http may not import engine/],
    [
      'imports follow the table',
      { 'src/core/a.ts': "import type { Pool } from '../runner/server.ts'" },
      /core may not import src\/runner\/server.ts/,
    ],
    ['imports follow the table', { 'src/attic/a.ts': '' }, /is not in a module/],
    ['imports follow the table', { 'src/stray.ts': '' }, /is not in a module/],
    ['imports follow the table', { 'src/cli/a.ts': "import '../../test/support/x.ts'" }, /in no module/],
    [
      'each package is imported only by its modules',
      { 'src/core/a.ts': "import Fastify from 'fastify'" },
      /core may not import/,
    ],
    [
      'each package is imported only by its modules',
      { 'src/core/a.ts': "import x from '@left/pad/y'" },
      /@left\/pad is not in/,
    ],
    [
      'modules do not import each other in a cycle',
      {
        'src/core/a.ts': "import '../tools/b.ts'",
        'src/tools/b.ts': "import '../mcp/c.ts'",
        'src/mcp/c.ts': "import '../core/a.ts'",
      },
      /cycle: core → tools → mcp → core/,
    ],
    [
      'files do not import values of each other in a cycle',
      { 'src/core/a.ts': "import { b } from './b.ts'", 'src/core/b.ts': "import { type A, a } from './a.ts'" },
      /src\/core\/a.ts → src\/core\/b.ts → src\/core\/a.ts/,
    ],
    [
      'files do not import values of each other in a cycle',
      {
        'src/core/a.ts': "import { b } from './b.ts'",
        'src/core/b.ts': "export * from './c.ts'",
        'src/core/c.ts': "await import('./a.ts')",
      },
      /imports itself/,
    ],
    [
      'text uses standard words',
      { 'src/attic/a.ts': '// Told to whoever came.' },
      /"report, return, send", not "Told"/,
    ],
    ['text uses standard words', { 'src/attic/a.ts': "const hint = 'Mend it and come again.'" }, /"fix", not "Mend"/],
    ['text uses standard words', { 'src/attic/a.ts': "'A run that goes on by itself'" }, /continue in the background/],
    ['text uses standard words', { 'src/attic/a.ts': '/** Nobody has it. */' }, /"Nobody"/],
    ['text uses standard words', { 'src/attic/a.ts': '// What is asked for.' }, /request/],
    ['text uses standard words', { 'src/attic/a.ts': '// As of itself, and there is none.' }, /leave it out/],
    ['text uses standard words', { 'src/attic/a.ts': '// A path that is none.' }, /does not exist/],
    ['text uses standard words', { 'src/attic/a.ts': '// What stands beside it.' }, /be stored with/],
    ['text uses standard words', { 'src/attic/a.ts': '// What stands in the way, gives word.' }, /prevent/],
    ['text uses standard words', { 'src/attic/a.ts': '// It gives word.' }, /report/],
    ['text uses standard words', { 'src/attic/a.ts': '// The link is good once.' }, /can be used once/],
    ['text uses standard words', { 'src/attic/a.ts': '// The client may come again.' }, /retry/],
    ['text uses standard words', { 'src/attic/a.ts': '// Ends it for good.' }, /permanently/],
    ['text uses standard words', { 'src/attic/a.ts': '// No name of ours.' }, /name it/],
    ['text uses standard words', { 'src/attic/a.ts': '// No slot can be had.' }, /is available/],
    ['text uses standard words', { 'src/attic/a.ts': '// And the other way round.' }, /the inverse/],
    ['tests are grouped by module', { 'test/contract/a.test.ts': '' }, /is not in test\/contract\/<module>/],
    ['tests are grouped by module', { 'test/contract/attic/a.test.ts': '' }, /is not in test\/contract\/<module>/],
    ['tests are grouped by module', { 'test/protocol/calls.ts': '' }, /is not a test/],
    ['tests are grouped by module', { 'test/support/a.test.ts': '' }, /is a test/],
    ['only main.ts uses the global process object', { 'src/core/a.ts': 'const key = process.env.KEY' }, /process.env/],
    ['only main.ts uses the global process object', { 'src/core/a.ts': 'process.exit(1)' }, /process.exit/],
    ['only main.ts uses the global process object', { 'src/core/a.ts': 'const { env } = process' }, /= process/],
    [
      'only main.ts uses the global process object',
      { 'src/core/a.ts': "import { argv } from 'node:process'" },
      /node:process/,
    ],
    ['only the files sqlite*.ts depend on SQLite', { 'src/store/a.ts': 'sql`pragma synchronous = full`' }, /pragma/],
    ['file names describe the content', { 'src/core/utils.ts': '' }, /does not describe/],
    ['file names describe the content', { 'src/core/index.ts': '' }, /does not describe/],
    ['file names describe the content', { 'test/support/server-helpers.ts': '' }, /does not describe/],
    ['file names describe the content', { 'src/core/SlotPool.ts': '' }, /kebab-case/],
    ['files have at most 350 lines', { 'src/core/a.ts': '\n'.repeat(400) }, /has 400 lines/],
    ['files have at most 350 lines', { 'guest/a.c': '\n'.repeat(400) }, /has 400 lines/],
    ['no test is marked as only or todo', { 'test/contract/a.test.ts': 'it.only("x")' }, /it.only/],
    ['no test is marked as only or todo', { 'test/contract/a.test.ts': 'it.todo("x")' }, /it.todo/],
    ['the code contains no TODO notes', { 'guest/a.c': '/* FIXME */' }, /a.c:1 a note/],
    ['checks are not disabled without a reason', { 'src/core/a.ts': '\n// @ts-ignore' }, /a.ts:2 disables/],
    ['checks are not disabled without a reason', { 'src/core/a.ts': '// biome-ignore lint/x: no' }, /disables/],
    ['checks are not disabled without a reason', { 'src/core/a.ts': 'f(x as any)' }, /as any/],
    ['checks are not disabled without a reason', { 'src/core/a.ts': 'const y = x as any as Y' }, /as any/],
    ['checks are not disabled without a reason', { 'src/core/a.ts': 'let x: any\nlet y: any = 1' }, /: any/],
    ['no file contains a path of one machine', { 'docs/a.md': `see /${'work'}/main/x` }, /a path of one machine/],
    ['no file contains a path of one machine', { 'docs/a.md': 'see /home/alice/x' }, /a path of one machine/],
    ['no file names a package registry', { '.npmrc': 'registry=https://npm.example' }, /names a registry/],
    [
      'no file names a package registry',
      { 'setup/a.sh': `curl https://registry.${'npmjs'}.org/x` },
      /names a registry/,
    ],
    ['the lockfile contains no download address', { 'package-lock.json': '"resolved": "https://x"' }, /address/],
    [
      'every promise has a test',
      { 'docs/promises.md': '| 1 | Safe. | `test/security/a.test.ts` | held |' },
      /not exist/,
    ],
    ['every promise has a test', { 'docs/promises.md': '' }, /contains no promise/],
    ['every promise has a test', { 'docs/promises.md': '| 1 | Safe. | `test/a.test.ts` | later |' }, /neither/],
    ['every promise has a test', { 'docs/promises.md': '| 1 | Safe. | `test/a.test.ts` | pending |' }, /1 pending/],
    ['every promise has a test', { 'docs/promises.md': '', 'test/security/b.test.ts': '' }, /is not named/],
    [
      'every promise has a test',
      { 'docs/promises.md': '| 1 | Safe. | `test/a.test.ts` | pending |', 'test/a.test.ts': '' },
      /no longer pending/,
    ],
    ['links and paths in documents exist', { 'README.md': 'see [that](docs/gone.md)' }, /docs\/gone.md/],
    ['links and paths in documents exist', { 'docs/a.md': 'see [that](../gone.md#top)' }, /points to gone.md/],
    ['links and paths in documents exist', { 'ARCHITECTURE.md': 'in `src/attic/`' }, /src\/attic/],
  ]

  for (const [sentence, files, expected] of cases) {
    checked.add(sentence)
    it(`${sentence}: ${Object.entries(files).flat().join(' ').trim().slice(0, 70)}`, () => {
      expect(found(sentence, files).join('\n')).toMatch(expected)
    })
  }

  it('does not count type-only imports as a cycle', () => {
    const b = "import type { A } from './a.ts'\nimport {\n  type A as B,\n  type C,\n} from './a.ts'"
    const files = { 'src/core/a.ts': "import { b } from './b.ts'", 'src/core/b.ts': b }
    expect(found('files do not import values of each other in a cycle', files)).toEqual([])
  })

  it('every rule has such an example', () => {
    expect([...checked].sort()).toEqual(Object.keys(rules).sort())
  })
})
