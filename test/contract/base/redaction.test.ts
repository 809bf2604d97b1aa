import { globSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Redactor } from '../../../src/base/redaction/redactor.ts'
import { formsOf } from '../../../src/base/redaction/registered.ts'

const redactor = new Redactor()
const redact = (text: string) => redactor.redact(text).text
const letters = (count: number) => 'aB3dE5gH7jK9mN1pQ2sT4vW6xY8z'.repeat(8).slice(0, count)
const pem = `-----BEGIN RSA PRIVATE KEY-----\n${`${letters(64)}\n`.repeat(6)}-----END RSA PRIVATE KEY-----`
const jwt = `eyJhbGciOiJub25lIn0.eyJ${letters(30)}.${letters(43)}`

/** Made of parts, so that no scanner takes this file for a leak. */
const shaped: readonly [name: string, secret: string][] = [
  ['aws-access-key', `AKIA${'IOSFODNN7EXAMPLQ'}`],
  ['github-pat', `ghp_${letters(36)}`],
  ['github-fine-grained-pat', `github_pat_${letters(82)}`],
  ['github-oauth', `gho_${letters(36)}`],
  ['gitlab-token', `glpat-${letters(20)}`],
  ['anthropic-api-key', `sk-ant-api03-${letters(60)}`],
  ['openai-api-key', `sk-proj-${letters(48)}`],
  ['google-api-key', `AIza${letters(35)}`],
  ['slack-token', `xoxb-1234567890-${letters(24)}`],
  ['stripe-live-key', `sk_live_${letters(24)}`],
  ['npm-token', `npm_${letters(36)}`],
  ['sendgrid-api-key', `SG.${letters(22)}.${letters(43)}`],
  ['jwt', jwt],
  ['private-key', pem],
]

describe('secrets with a shape', () => {
  for (const [name, secret] of shaped) {
    it(`replaces ${name} in any surroundings`, () => {
      for (const [before, after] of [
        ['', ''],
        ['key is ', ' here'],
        ['"', '"'],
        ['x=', ';'],
        ['\n(', ')\n'],
      ] as const) {
        expect(redact(`${before}${secret}${after}`)).toBe(`${before}[REDACTED:${name}]${after}`)
      }
    })
  }

  it('replaces a private key whose end is missing, and one inside a JSON string', () => {
    const begun = pem.slice(0, 200)
    expect(redact(`a ${begun}`)).toBe('a [REDACTED:private-key]')
    expect(redact(JSON.stringify({ key: pem }))).toBe('{"key":"[REDACTED:private-key]"}')
  })
})

describe('secrets with a name', () => {
  const cases: readonly [text: string, shown: string][] = [
    ['OPENAI_API_KEY=abc123def', 'OPENAI_API_KEY=[REDACTED:secret-assignment]'],
    ['MY_TOKEN=hunter2', 'MY_TOKEN=[REDACTED:secret-assignment]'],
    ['export DB_PASSWORD="correct-h0rse-battery"', 'export DB_PASSWORD="[REDACTED:secret-assignment]"'],
    ['{"client_secret": "a1b2c3d4e5"}', '{"client_secret": "[REDACTED:secret-assignment]"}'],
    ['{\\"apiKey\\": \\"a1b2c3d4e5\\"}', '{\\"apiKey\\": \\"[REDACTED:secret-assignment]\\"}'],
    ['password: s3cr3t-Value\nnext: 1', 'password: [REDACTED:secret-assignment]\nnext: 1'],
    ["config['auth_token'] = 'zX81-sp3ctrum'", "config['auth_token'] = '[REDACTED:secret-assignment]'"],
    ['postgres://app:s3cret@db.internal/app', 'postgres://app:[REDACTED:url-password]@db.internal/app'],
    ['Authorization: Bearer abc.def-123', 'Authorization: Bearer [REDACTED:authorization]'],
    [`curl -H 'authorization: basic ${letters(24)}=='`, "curl -H 'authorization: basic [REDACTED:authorization]'"],
  ]
  for (const [text, shown] of cases) {
    it(`shows ${shown.split('\n')[0]}`, () => {
      expect(redact(text)).toBe(shown)
    })
  }

  it('keeps programs that only speak of secrets', () => {
    for (const text of [
      'token = lexer.next_token()',
      'const password = await prompt("Password")',
      'if (token === "identifier2") return',
      'password: str = field(default=None)',
      'TOKEN=$(cat /run/token)',
      'SECRET="$1"',
      'api_key = os.environ["API_KEY"]',
      'T_TOKEN=258,',
      '<input type="password" name="password">',
      'git@github.com:owner/name.git',
      'http://user@host/path:80',
      'MAX_TOKEN=4096',
      '"password": "Password"',
    ]) {
      expect(redact(text)).toBe(text)
    }
  })
})

describe('a corpus of real source files', () => {
  it('is returned unchanged', () => {
    const root = fileURLToPath(new URL('../../../', import.meta.url))
    const packages = [
      'fastify/lib',
      'kysely/dist',
      'undici/lib',
      'typebox/build',
      'ajv/dist',
      'pino/lib',
      'prom-client/lib',
    ]
    const files = [
      ...globSync('/usr/lib/python3*/*.py'),
      ...globSync(packages.map((path) => `${root}node_modules/${path}/**/*.js`)),
      ...globSync([`${root}src/**/*.ts`, `${root}guest/*.c`, `${root}setup/**/*.{sh,ts}`]),
    ]
    expect(files.length).toBeGreaterThan(800)
    const changed = files.filter((file) => redactor.find(readFileSync(file, 'utf8')).length > 0)
    expect(changed).toEqual([])
  })
})

describe('registered secrets', () => {
  const value = 'p@ss wörd/+"x"'
  const known = new Redactor([{ name: 'db password', value }])

  it('are found in every form in which programs print them', () => {
    const bytes = Buffer.from(value)
    const printed = [
      value,
      bytes.toString('hex'),
      encodeURIComponent(value),
      encodeURIComponent(value).toLowerCase(),
      JSON.stringify(value),
      ...['', 'a', 'ab'].map((before) => Buffer.from(`${before}${value}:tail`).toString('base64')),
      ...['', 'a', 'ab'].map((before) => Buffer.from(`${before}${value}:tail`).toString('base64url')),
    ]
    for (const text of printed) expect(known.redact(`<${text}>`).text).toContain('[REDACTED:db_password]')
  })

  it('are found wherever they are, with any neighbours', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 6, maxLength: 60 }), fc.string(), fc.string(), (secret, before, after) => {
        const { text } = new Redactor([{ name: 'x', value: secret }]).redact(`${before}${secret}${after}`)
        expect(text).not.toBe(`${before}${secret}${after}`)
        expect(text).toContain('[REDACTED:')
      }),
    )
  })

  it('leave no form of a value in a text', () => {
    const form = fc.constantFrom(...formsOf(value))
    fc.assert(
      fc.property(fc.array(fc.oneof(form, fc.string({ unit: 'grapheme' }), fc.base64String())), (parts) => {
        const { text } = known.redact(parts.join(' '))
        for (const each of formsOf(value)) expect(text).not.toContain(each)
      }),
    )
  })
})

describe('text in pieces', () => {
  const secrets = [{ name: 'known', value: 'line one of it\nline two of it' }]
  const known = new Redactor(secrets)
  const part = fc.oneof(
    fc.constantFrom(...shaped.map(([, secret]) => secret), secrets[0]!.value, 'API_KEY=a1b2c3d4', 'token: "a1b2c3d4e"'),
    fc.constantFrom('\n', ' ', '"', 'https://u:', '@', 'Bearer ', '-----BEGIN '),
    fc.string(),
  )

  it('is redacted as if it had arrived at once', () => {
    fc.assert(
      fc.property(fc.array(part, { maxLength: 12 }), fc.array(fc.nat(400), { maxLength: 20 }), (parts, cuts) => {
        const text = parts.join(' ')
        const stream = known.stream()
        const shown: string[] = []
        let at = 0
        for (const cut of cuts) {
          shown.push(stream.push(text.slice(at, at + cut)).text)
          at += cut
        }
        shown.push(stream.push(text.slice(at)).text, stream.end().text)
        expect(shown.join('')).toBe(known.redact(text).text)
      }),
      { numRuns: 500 },
    )
  })

  it('hides a key to the end of its last line, wherever that is cut', () => {
    const key = shaped.find(([, secret]) => secret.startsWith('-----BEGIN '))![1]
    for (let cut = 1; cut < key.length; cut += 1) {
      const stream = redactor.stream()
      const shown = `${stream.push(key.slice(0, cut)).text}${stream.push(key.slice(cut)).text}${stream.end().text}`
      expect([cut, shown]).toEqual([cut, '[REDACTED:private-key]'])
    }
  })

  it('shows lines as soon as they are complete', () => {
    const stream = redactor.stream()
    expect(stream.push('building\nstep 1 of ').text).toBe('building\nstep 1 of ')
    expect(stream.push('2 MY_TOKEN=abc').text).toBe('')
    expect(stream.push('123\n').text).toBe('2 MY_TOKEN=[REDACTED:secret-assignment]\n')
  })

  it('holds back at most 64 KiB of a text without breaks', () => {
    const stream = redactor.stream()
    let shown = 0
    for (let piece = 0; piece < 32; piece += 1) shown += stream.push('a'.repeat(8192)).text.length
    expect(32 * 8192 - shown).toBeLessThanOrEqual(65_536)
  })
})

describe('hostile text', () => {
  const hostile = [
    'sk-',
    'token=',
    'token="',
    't=',
    '.eyJ',
    'ghp_',
    '-----BEGIN PRIVATE KEY-----',
    'a://b:',
    'A_KEY=a.',
  ]

  it('costs time in proportion to its length', () => {
    // Four times the text takes about four times as long; a quadratic scan would take sixteen times.
    const costOf = (text: string) => {
      const costs = [0, 1, 2].map(() => {
        const before = process.cpuUsage()
        redactor.find(text)
        return process.cpuUsage(before).user
      })
      return Math.min(...costs)
    }
    for (const unit of hostile) {
      const base = costOf(unit.repeat(20_000))
      expect(costOf(unit.repeat(160_000)), unit).toBeLessThan(Math.max(base, 4000) * 32)
    }
  })
})
