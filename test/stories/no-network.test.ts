import { execFileSync } from 'node:child_process'
import { accessSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { callTool, execute, post } from '../support/calls.ts'
import { openStory } from '../support/story.ts'

/** In seconds. Starting pip or npm takes most of the time of a run; waiting is counted, not measured. */
const timeout = 60

const commands: readonly [program: string, command: string][] = [
  ['curl', 'curl -sS https://example.com'],
  ['curl', 'curl -sS http://192.0.2.1'],
  ['wget', 'wget https://example.com'],
  ['git', 'git clone https://example.com/a/b'],
  ['ssh', 'ssh host.example.com'],
  ['pip3', 'python3 -m pip install a-package-of-the-index'],
  ['npm', 'npm install a-package-of-the-registry'],
  ['apt-get', 'apt-get update'],
  ['apt-get', 'apt-get install -y jq'],
  ['git', 'git clone https://example.com/a/b 2>&1'],
  ['pip3', 'python3 -m pip install a-package-of-the-index 2>&1 | tail -2'],
  ['npm', 'npm install a-package-of-the-registry 2>&1 | tail -4'],
  ['apt-get', 'apt-get update 2>&1'],
]

const isInstalled = (program: string): boolean => {
  try {
    accessSync(`/usr/bin/${program}`)
    return true
  } catch {
    return false
  }
}

describe('a run without network', () => {
  const story = openStory()

  /** Compiled from test/support/count-waits.c, in base64. */
  let counter: string
  const directory = mkdtempSync(join(tmpdir(), 'glovebox-waits-'))
  beforeAll(() => {
    const [source, library] = [join(import.meta.dirname, '../support/count-waits.c'), join(directory, 'waits.so')]
    execFileSync('cc', ['-shared', '-fPIC', '-Wall', '-Wextra', '-Werror', '-s', '-o', library, source, '-ldl'])
    counter = readFileSync(library, 'base64')
  })
  afterAll(() => rmSync(directory, { recursive: true, force: true }))

  /** Runs a command, and prints each pause of it and each wait that nothing ended. */
  const counting = (command: string) => `
base64 -d >/tmp/waits.so <<'END'
${counter}
END
(export WAITS=/tmp/waits LD_PRELOAD=/tmp/waits.so; ${command})
code=$?
touch /tmp/waits; sed 's/^/waited: /' /tmp/waits
exit $code`

  const textOf = async (language: string, code: string) => {
    const { body } = await callTool(story.url, { language, code, timeout })
    return body.result?.content[0]?.text ?? ''
  }

  for (const [program, command] of commands) {
    it.skipIf(!isInstalled(program))(`fails without a pause and says why: ${command}`, async () => {
      const text = await textOf('bash', counting(command))
      expect(text).toContain('**Exit code:**')
      expect(text).not.toContain('waited:')
      expect(text).toContain('a run has no network')
    })
  }

  it.skipIf(!isInstalled('pip3'))('pauses between attempts where a program tries several times', async () => {
    const asked = counting('python3 -m pip install --retries 2 a-package-of-the-index')
    expect(await textOf('bash', asked)).toMatch(/waited: python3\S* pauses for 500 ms/)
  })

  // The resolver of C asks there if nothing is configured, and waits for seconds only if its question seems to arrive.
  it('refuses questions about names at once', async () => {
    const ask = `
import socket
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    asking = socket.socket(family, socket.SOCK_DGRAM)
    asking.connect((address, 53))
    asking.send(b'x')
    try: asking.recv(1)
    except ConnectionRefusedError: print('refused')
print(repr(open('/etc/resolv.conf').read()))
`
    expect((await execute(story.url, 'python', ask)).stdout).toBe("refused\nrefused\n''\n")
  })

  it('resolves no name, in any language', async () => {
    const programs = [
      ['python', 'import socket; socket.getaddrinfo("example.com", 80)'],
      ['python', 'import socket; socket.create_connection(("192.0.2.1", 80))'],
      ['node', 'fetch("https://example.com")'],
      ['node', 'require("dns").resolve("example.com", (error) => { throw error })'],
    ] as const
    for (const [language, code] of programs)
      expect([code, await textOf(language, code)]).toEqual([code, expect.stringContaining('a run has no network')])
  })

  it('finds the packages and programs that the description of the tool names', async () => {
    const { body } = await post<{ result: { tools: { description: string }[] } }>(`${story.url}/mcp`, {
      ...{ jsonrpc: '2.0', id: 1, method: 'tools/list' },
    })
    const description = body.result.tools[0]?.description ?? ''
    const packages = /Python packages: (.*?) \(importlib/.exec(description)?.[1]?.split(', ') ?? []
    const installed = await execute(
      story.url,
      'python',
      `
import re
from importlib.metadata import distributions
print(sorted({re.sub(r'[-_.]+', '-', d.name).lower() + ' ' + d.version for d in distributions() if d.name}))
`,
    )
    for (const one of packages) expect(installed.stdout).toContain(`'${one}'`)
    const programs = /Programs: (.*?)\. /.exec(description)?.[1]?.split(', ') ?? []
    const found = await execute(story.url, 'bash', `command -v ${['bash', ...programs].join(' ')}`)
    expect(found.stdout.trim().split('\n')).toHaveLength(programs.length + 1)
    const versions = await execute(story.url, 'python', 'import platform; print(platform.python_version())')
    expect(description).toContain(`Installed: Python ${versions.stdout.trim()}`)
    const limits = await post<{ result: { contents: { text: string }[] } }>(`${story.url}/mcp`, {
      ...{ jsonrpc: '2.0', id: 1, method: 'resources/read', params: { uri: 'glovebox://limits' } },
    })
    const { interpreters, python_packages } = JSON.parse(limits.body.result.contents[0]?.text ?? '{}')
    expect(interpreters.python).toBe(`Python ${versions.stdout.trim()}`)
    expect(Object.entries(python_packages).map(([name, version]) => `${name} ${version}`)).toEqual(packages)
  })
})
