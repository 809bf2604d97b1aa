import { describe, expect, it } from 'vitest'
import { CrashBackoff } from '../../../src/core/upstreams/programs/crash-backoff.ts'
import { checkedProgram, installationOf, installOf } from '../../../src/core/upstreams/programs/program.ts'
import { RecentText } from '../../../src/core/upstreams/programs/recent-text.ts'
import { redactSecrets } from '../../../src/core/upstreams/redact-secrets.ts'

const program = (command: string, ...args: string[]) => checkedProgram({ command, args }, null)

describe('the installation of a program', () => {
  it.each([
    ['npx', ['-y', 'pkg@1.0.0', '--port', '1'], ['npx', '--yes', '--package=pkg@1.0.0', '--', 'node', '--version']],
    ['npx', ['--package', '@a/b', '-y', 'run-b'], ['npx', '--yes', '--package=@a/b', '--', 'node', '--version']],
    ['/usr/bin/npx', ['-p=x', 'pkg'], ['/usr/bin/npx', '--yes', '--package=pkg', '--', 'node', '--version']],
    ['uvx', ['pkg@1.0'], ['uvx', '--from=pkg==1.0', 'python', '--version']],
    ['uvx', ['--python', '3.12', 'pkg@latest'], ['uvx', '--from=pkg', 'python', '--version']],
    [
      'uvx',
      ['--from', 'git+https://example.com/x', 'x'],
      ['uvx', '--from=git+https://example.com/x', 'python', '--version'],
    ],
    ['node', ['server.js'], null],
    ['npx', ['--version'], null],
  ])('of %s %j is %j', (command, args, expected) => {
    expect(installOf(program(command, ...args))).toEqual(expected)
  })

  it('is another one for another command or image, and the same for other arguments', () => {
    const one = installationOf(program('npx', 'pkg@1', 'a'))
    expect(installationOf(program('npx', 'pkg@1', 'b'))).toBe(one)
    expect(installationOf(program('npx', 'pkg@2', 'a'))).not.toBe(one)
    expect(installationOf({ ...program('npx', 'pkg@1'), image: 'other' })).not.toBe(one)
    expect(installOf({ ...program('x'), install: ['pip', 'install', 'x'] })).toEqual(['pip', 'install', 'x'])
  })
})

describe('an argument that looks like a secret', () => {
  const secret = ['--token=', 'ghp_0123456789abcdefghij', 'ABCDEFGHIJ012345'].join('')
  const no_secret_reason = 'a made-up token of the manual'

  it.each(['args', 'install'] as const)('is refused in %s, and accepted with the reason why it is not one', (field) => {
    const asked = { command: 'x', [field]: [secret] }
    expect(() => checkedProgram(asked, null)).toThrow(`program.${field} contains a secret`)
    expect(() => checkedProgram({ ...asked, no_secret_reason: ' ' }, null)).toThrow('program.no_secret_reason')
    expect(checkedProgram({ ...asked, no_secret_reason }, null)).toMatchObject({
      ...{ [field]: [secret], noSecretReason: no_secret_reason },
    })
  })

  it('is checked again when the arguments are changed', () => {
    const old = checkedProgram({ command: 'x', args: [secret], no_secret_reason }, null)
    expect(checkedProgram({ cpus: 2 }, old)).toMatchObject({ args: [secret], noSecretReason: no_secret_reason })
    expect(() => checkedProgram({ args: [secret, '-v'] }, old)).toThrow('program.args contains a secret')
    expect(checkedProgram({ args: ['-v'] }, old).noSecretReason).toBeNull()
  })
})

describe('a program that ends by itself', () => {
  it('is started again at once, then after pauses that double up to a minute', () => {
    let nowMs = 0
    const backoff = new CrashBackoff(() => nowMs)
    const waits = Array.from({ length: 10 }, () => {
      backoff.crashed('a', 10)
      return backoff.waitSeconds('a')
    })
    expect(waits).toEqual([0, 1, 1, 2, 4, 8, 16, 32, 60, 60])
    expect(backoff.waitSeconds('b')).toBe(0)
    backoff.crashed('b', 10)
    expect(backoff.recent(1_000)).toEqual([
      { name: 'a', count: 10 },
      { name: 'b', count: 1 },
    ])
    nowMs += 60_000
    expect(backoff.waitSeconds('a')).toBe(0)
    expect(backoff.recent(1_000)).toEqual([])
    backoff.crashed('a', 60_000)
    expect([backoff.count('a'), backoff.waitSeconds('a')]).toEqual([1, 0])
  })
})

describe('standard error of a program', () => {
  it('is kept up to its limit, without what acts on a terminal', () => {
    const text = new RecentText(16)
    for (let n = 0; n < 1_000; n++) text.add(Buffer.from(`${n % 10}`))
    expect(`${text}`).toBe('4567890123456789')
    text.add(Buffer.from('\u001b[31mred\u001b[0m\u0007\n'))
    expect(`${text}`).toMatch(/red\n$/)
    expect(`${text}`).not.toContain('\u0007')
  })

  it('loses secrets of all kinds', () => {
    const credential = { in: 'env', name: 'A', prefix: '', values: ['first-secret', 'second-secret'] } as const
    const secrets = { headers: {}, credential, env: { B: 'third-secret' } }
    const text = `first-secret ${Buffer.from('second-secret').toString('base64')} third-secret`
    expect(redactSecrets(text, { secrets })).toBe('[redacted] [redacted] [redacted]')
  })
})
