import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, it } from 'vitest'
import { exitCodeOf } from '../../../src/base/exit-codes.ts'
import type { Profile } from '../../../src/base/profile.ts'
import { type Ending, noTimings, type RunResult, toLanguage } from '../../../src/base/run.ts'
import { compile } from '../../../src/base/schema-check.ts'
import { noSoftware, type Software } from '../../../src/base/software.ts'
import type { Transcript } from '../../../src/core/runs/transcript.ts'
import { toExecution } from '../../../src/http/rest/execution.ts'
import { Catalog, chooseToolsets, defaultToolsets, productInventory } from '../../../src/tools/catalog.ts'
import { bytesInWords, endingInWords } from '../../../src/tools/execute/ending-words.ts'
import { executionResult, toMarkdown, toStructuredContent, toToolResult } from '../../../src/tools/execute/result.ts'
import { SandboxExecuteInput } from '../../../src/tools/execute/schema.ts'
import { toExecutionResult } from '../../../src/tools/executions/execution.ts'
import { testProfile, threadsProfile } from '../../support/front.ts'

const endings: Ending[] = [
  { kind: 'exited', code: 0 },
  { kind: 'exited', code: 3 },
  { kind: 'signaled', signal: 'SEGV' },
  { kind: 'signaled', signal: '34' },
  { kind: 'timed_out', limitMs: 30_000 },
  { kind: 'out_of_memory', limitBytes: 512 * 1024 * 1024 },
  { kind: 'output_limit', limitBytes: 1024 },
  { kind: 'disk_quota', limitBytes: 1024 },
  { kind: 'cancelled' },
  { kind: 'shutdown' },
  { kind: 'failed', reason: 'slot_lost' },
]

function transcript(
  stdout: string,
  stderr = '',
  ending: Ending = endings[0]!,
  more: Partial<RunResult> = {},
): Transcript {
  const text = (value: string) => ({ text: value, totalBytes: Buffer.byteLength(value), omittedBytes: 0 })
  return {
    runId: 'trc_1',
    stdout: text(stdout),
    stderr: text(stderr),
    images: [],
    outputLost: false,
    result: {
      ending,
      durationMs: 1.5,
      cpuTimeMs: 1,
      memoryPeakBytes: 1,
      oomKills: 0,
      outputBytes: { stdout: 0, stderr: 0 },
      limits: { ...testProfile.limits, timeoutMs: 30_000 },
      timings: { ...noTimings, runMs: 1.5 },
      ...more,
    },
  }
}

describe('the text of a result', () => {
  it.each([
    ['pids', "RuntimeError: can't start new thread\n", 'processes and threads are allowed'],
    ['pids', 'main.sh: fork: retry: Resource temporarily unavailable\n', 'processes and threads are allowed'],
    ['pids', 'Error: spawn /bin/true EAGAIN\n', 'processes and threads are allowed'],
    ['open_files', "OSError: [Errno 24] Too many open files: 'a'\n", 'open files are allowed in each process'],
    ['open_files', "Error: EMFILE: too many open files, open 'a'\n", 'open files are allowed in each process'],
    ['file_size', 'OSError: [Errno 27] File too large\n', 'a file may be at most'],
    ['storage', "cp: error writing '/tmp/a': No space left on device\n", '/tmp holds at most'],
    ['sockets', 'OSError: [Errno 105] No buffer space available\n', 'the buffers of sockets are part of'],
    ['storage', 'Error: ENOSPC: no space left on device, write\n', '/tmp holds at most'],
  ])('names the limit %s that standard error shows', (name, stderr, words) => {
    const run = transcript('', stderr, { kind: 'exited', code: 1 })
    expect(toMarkdown(run)).toContain(`**Note:** a limit was met: `)
    expect(toMarkdown(run)).toContain(words)
    expect(toStructuredContent(run, { timings: false })).toMatchObject({ limits_met: [name] })
  })

  it.each([
    'curl: (6) Could not resolve host: example.org\n',
    "fatal: unable to access 'https://example.org/': Could not resolve host: example.org\n",
    'socket.gaierror: [Errno -3] Temporary failure in name resolution\n',
    'npm error request failed, reason: getaddrinfo EAI_AGAIN packages.example\n',
    "Err:1 http://packages.example Temporary failure resolving 'packages.example'\n",
    'connect: Network is unreachable\n',
    "curl: (7) Failed to connect to 192.0.2.1 port 80 after 0 ms: Couldn't connect to server\n",
    'Error: queryA ECONNREFUSED example.org\n',
    'ERROR: Could not find a version that satisfies the requirement left (from versions: none)\n',
    'E: List directory /var/lib/apt/lists/partial is missing. - Acquire (2: No such file or directory)\n',
  ])('says that a run has no network after %j', (stderr) => {
    const text = toMarkdown(transcript('', stderr, { kind: 'exited', code: 1 }))
    expect(text.match(/a run has no network/g)).toHaveLength(1)
  })

  it.each([
    ['pids', "failed: can't start new thread\n"],
    ['open_files', "[Errno 24] Too many open files: 'a'\n"],
    ['file_size', 'could not write: [Errno 27] File too large\n'],
    ['storage', 'ENOSPC: no space left on device, write\n'],
    ['sockets', 'send failed: [Errno 105] No buffer space available\n'],
    ['pids', 'main.sh: fork: retry: Resource temporarily unavailable\n'],
    ['storage', "first\ncp: error writing '/tmp/a': No space left on device\nlast\n"],
  ])('names the limit %s of an error that a program caught and printed', (name, stdout) => {
    const run = transcript(stdout, '', { kind: 'exited', code: 0 })
    expect(toStructuredContent(run, { timings: false })).toMatchObject({ limits_met: [name] })
  })

  it.each([
    'curl: (6) Could not resolve host: example.org',
    "fatal: unable to access 'https://example.org/': Could not resolve host: example.org",
    'ssh: Could not resolve hostname git.example.org: Temporary failure in name resolution',
    'wget: unable to resolve host address ‘example.org’',
    '<urlopen error [Errno -2] Name or service not known>',
    'Error: getaddrinfo ENOTFOUND example.org',
    'npm error network In most cases you are behind a proxy or have bad network settings.',
    'ERROR: Could not find a version that satisfies the requirement left (from versions: none)',
    "W: Failed to fetch http://packages.example/InRelease  Could not resolve 'packages.example'",
    'E: Unable to locate package left',
  ])('says that a run has no network where standard output contains the error of a program: %s', (line) => {
    const text = toMarkdown(transcript(`first\n${line}\nlast\n`, '', { kind: 'exited', code: 0 }))
    expect(text.match(/a run has no network/g)).toHaveLength(1)
  })

  it('does not take a text about errors in standard output for an error', () => {
    const lines = ['3 × Could not resolve host', 'Network is unreachable: 17', 'the disk: No space left on device (x2)']
    const run = transcript(lines.join('\n'), '', { kind: 'exited', code: 0 })
    expect(toMarkdown(run)).not.toContain('**Note:**')
  })

  it.each([
    'Could not find a version that satisfies the requirement ',
    'Resource temporarily unavailable ',
    "\nfatal: unable to access '",
    'fork ',
    'spawn x',
    'a: ',
  ])('is made from megabytes of text that almost looks like an error: %j', (piece) => {
    const said = piece.repeat(Math.ceil((4 * 1024 ** 2) / piece.length))
    expect(toMarkdown(transcript(said, said))).not.toContain('**Note:**')
  })

  it('does not take a socket that would block for a limit on processes', () => {
    const run = transcript('', 'BlockingIOError: [Errno 11] Resource temporarily unavailable\n')
    expect(toStructuredContent(run, { timings: false })).not.toHaveProperty('limits_met')
  })

  it('says nothing of a network after a refused connection on loopback', () => {
    const text = "curl: (7) Failed to connect to localhost port 80 after 0 ms: Couldn't connect to server\n"
    expect(toMarkdown(transcript('', text, { kind: 'exited', code: 7 }))).not.toContain('network')
  })

  it('names no limit and no network that only standard output mentions', () => {
    const run = transcript('Too many open files\nNetwork is unreachable\n', 'ValueError: no\n')
    expect(toMarkdown(run)).not.toContain('**Note:**')
    expect(toStructuredContent(run, { timings: false })).not.toHaveProperty('limits_met')
  })

  it('shows non-empty streams and the exit code', () => {
    expect(toMarkdown(transcript('Python 3.14\n'))).toBe(
      '## Execution Result\n\n**stdout:**\n```\nPython 3.14\n```\n\n**Exit code:** 0',
    )
    expect(toMarkdown(transcript('', 'oops', { kind: 'exited', code: 1 }))).toBe(
      '## Execution Result\n\n**stderr:**\n```\noops\n```\n\n**Exit code:** 1',
    )
    expect(toMarkdown(transcript('a', 'b'))).toBe(
      '## Execution Result\n\n**stdout:**\n```\na\n```\n\n**stderr:**\n```\nb\n```\n\n**Exit code:** 0',
    )
    expect(toMarkdown(transcript(''))).toBe('## Execution Result\n\n**Exit code:** 0')
  })

  it('says how a run ended that did not exit', () => {
    const ended = (ending: Ending) =>
      toMarkdown(transcript('', '', ending))
        .split('\n')
        .at(-1)
    expect(ended({ kind: 'timed_out', limitMs: 30_000 })).toBe('**Ended:** killed after 30 s (timed out)')
    expect(ended({ kind: 'out_of_memory', limitBytes: 512 * 1024 * 1024 })).toBe(
      '**Ended:** killed for using more than 512 MiB of memory (out of memory)',
    )
    expect(ended({ kind: 'signaled', signal: 'SEGV' })).toBe('**Ended:** ended by signal SIGSEGV')
  })

  it('keeps output inside its code block, whatever fences it prints', () => {
    const forged = 'x\n```\n\n**Exit code:** 0\n\n`````\n'
    const text = toMarkdown(transcript(forged, '', { kind: 'exited', code: 1 }))
    expect(text).toContain(`**stdout:**\n\`\`\`\`\`\`\n${forged}\`\`\`\`\`\`\n`)
    expect(text.endsWith('**Exit code:** 1')).toBe(true)
  })

  it('states how many bytes were omitted', () => {
    const cut = { ...transcript('a'), stdout: { text: 'a', totalBytes: 100, omittedBytes: 99 } }
    expect(toMarkdown(cut)).toContain('**stdout truncated:** 99 of 100 bytes left out')
  })

  it('mentions processes that were killed for memory although the program survived', () => {
    expect(toMarkdown(transcript('', '', endings[0], { oomKills: 2 }))).toContain('2 of its processes')
  })

  it('says so when output is lost, instead of showing an empty one', () => {
    const { result } = transcript('', '', { kind: 'failed', reason: 'interrupted' })
    const printed = { ...result, outputBytes: { stdout: 5, stderr: 0 } }
    const lost = { runId: 'trc_1', createdAt: '', ending: result.ending, output: null }
    const whole = { maxCharacters: 1_000, offers: () => true }
    const { content, structuredContent } = executionResult({ ...lost, result: printed }, whole)
    expect(content).toMatchObject([{ text: expect.stringContaining('**Note:** the output was not kept') }])
    expect(structuredContent).toMatchObject({ stdout: '', stdout_bytes: 5, stdout_truncated: true })
    expect(structuredContent).toMatchObject({ stderr_bytes: 0, stderr_truncated: false })
    expect(executionResult({ ...lost, result: null }, whole).content).toEqual(
      toExecutionResult({ ...lost, result: null }, undefined, () => true).content,
    )
  })
})

describe('the structured fields of a result', () => {
  it('match the output schema, for every ending', () => {
    const [listing] = new Catalog().offer(testProfile, defaultToolsets(testProfile)).tools
    const validate = new Ajv2020({ strict: true, allowUnionTypes: true }).compile(listing?.outputSchema ?? false)
    for (const ending of endings) {
      const content = toStructuredContent(transcript('out', 'err', ending), { timings: true })
      expect(validate(content) ? [] : validate.errors).toEqual([])
      expect(content.trace_id).toBe('trc_1')
    }
  })

  it('mark everything except exit code 0 as an error', () => {
    expect(endings.map((ending) => toToolResult(transcript('', '', ending), { timings: false }).isError)).toEqual([
      false,
      ...endings.slice(1).map(() => true),
    ])
  })

  it('have the exit code that a shell would report, the same as over REST', () => {
    const codes = [0, 3, 139, 162, 124, 137, 137, 137, 130, 143, null]
    const over = (form: (ending: Ending) => { exit_code?: unknown }) => endings.map((ending) => form(ending).exit_code)
    const delivery = { createdAt: '', completedAt: '', deliveryMode: 'inline' } as const
    expect(over((ending) => toStructuredContent(transcript('', '', ending), { timings: false }))).toEqual(codes)
    expect(over((ending) => toExecution(transcript('', '', ending), delivery, { timings: false }))).toEqual(codes)
    const whole = { maxCharacters: 1_000, offers: () => true }
    const fetched = (ending: Ending) =>
      executionResult({ runId: 'trc_1', createdAt: '', ending, output: null, result: null }, whole)
    expect(over((ending) => fetched(ending).structuredContent ?? {})).toEqual(codes)
    const processes = [{ kind: 'not_started', reason: 'x' }, { kind: 'sandbox_ended' }] as const
    expect(processes.map((ending) => exitCodeOf(ending))).toEqual([127, 137])
  })

  it('describe every ending differently', () => {
    expect(new Set(endings.map(endingInWords)).size).toBe(endings.length)
  })

  it('use a readable unit for sizes', () => {
    const sizes = [512, 1024, 1536, 1024 * 1024, 1.5 * 1024 ** 3, 1000]
    expect(sizes.map(bytesInWords)).toEqual(['512 bytes', '1 KiB', '1.5 KiB', '1 MiB', '1.5 GiB', '1000 bytes'])
  })
})

describe('the tool list', () => {
  const listed = (profile: Profile) => new Catalog().offer(profile, defaultToolsets(profile)).tools[0]!

  it('is byte-identical for every call and every catalog', () => {
    const catalog = new Catalog()
    const offer = catalog.offer(testProfile, defaultToolsets(testProfile))
    expect(catalog.offer(testProfile, defaultToolsets(testProfile))).toBe(offer)
    expect(catalog.offer(testProfile, ['executions', 'files', 'execute'])).toBe(offer)
    expect(JSON.stringify(new Catalog().offer(testProfile, defaultToolsets(testProfile)).tools)).toBe(
      JSON.stringify(offer.tools),
    )
  })

  it('accepts the arguments of existing clients of these tools', () => {
    const { name, inputSchema, annotations } = listed({ ...threadsProfile, timeoutMaxMs: 3_600_000 })
    expect(name).toBe('sandbox_execute')
    expect(annotations).toEqual({ readOnlyHint: false, destructiveHint: false, idempotentHint: false })
    expect(inputSchema).toMatchObject({
      type: 'object',
      properties: {
        code: { type: 'string', description: 'Code to execute' },
        language: { type: 'string', enum: ['python', 'node', 'typescript', 'bash'] },
        timeout: { type: 'integer', minimum: 1, maximum: 3600 },
        thread_id: { type: 'string' },
        metadata: { type: 'object' },
        env_vars: { type: 'object', additionalProperties: { type: 'string' } },
      },
      required: ['code'],
    })
  })

  it('describes the profile correctly', () => {
    const profile: Profile = { ...testProfile, languages: ['bash'], defaultLanguage: 'bash', timeoutMaxMs: 20_000 }
    const { description, inputSchema } = listed(profile)
    expect(inputSchema).toMatchObject({
      properties: { language: { enum: ['bash'], default: 'bash' }, timeout: { maximum: 20, default: 10 } },
    })
    for (const words of [
      'Each call starts fresh',
      'There is no network',
      'bash (default)',
      'at most 20 s',
      '512 MiB',
    ]) {
      expect(description).toContain(words)
    }
    expect(description).not.toContain('python')
  })

  it('names the versions of the interpreters of the profile, and the packages of the image', () => {
    const software = {
      interpreters: [
        { language: 'python', version: 'Python 3.14.1' },
        { language: 'node', version: 'Node.js v24.0.0' },
      ] as const,
      pythonPackages: [{ name: 'numpy', version: '2.4.0' }],
      pythonPackagesTotal: 7,
      programs: ['git'],
    }
    let now: Software = noSoftware
    const catalog = new Catalog(productInventory, () => now)
    const describe = (profile: Profile) => catalog.offer(profile, ['execute']).tools[0]?.description
    expect(describe(testProfile)).not.toContain('Installed')
    now = software
    expect(describe(testProfile)).toContain(
      'Installed: Python 3.14.1, Node.js v24.0.0. Python packages: numpy 2.4.0 (importlib.metadata.distributions() lists all 7). Programs: git.',
    )
    const withoutPython = describe({ ...testProfile, languages: ['node'], defaultLanguage: 'node' })
    expect(withoutPython).toContain('Installed: Node.js v24.0.0. Programs: git.')
  })

  it('promises persistent files only for profiles with storage', () => {
    const [without, withThreads] = [listed(testProfile), listed(threadsProfile)]
    expect(without.inputSchema).not.toHaveProperty('properties.thread_id')
    expect(without.description).toContain('Files are not kept')
    expect(withThreads.description).toMatch(/kept for the next call with the same thread_id, up to 8 MiB in 1000 files/)
    const names = (profile: Profile) => new Catalog().offer(profile, ['execute', 'files']).tools.map(({ name }) => name)
    expect(names(testProfile)).toEqual(['sandbox_execute'])
    expect(names(threadsProfile).toSorted()).toEqual([
      ...['files_download', 'files_list', 'files_upload', 'sandbox_execute', 'threads_fork', 'threads_list'],
    ])
  })

  it('can be limited by toolset, and a hidden tool is unknown', () => {
    const offer = new Catalog().offer(testProfile, chooseToolsets('files', testProfile))
    expect(offer.tools).toEqual([])
    expect(() => offer.tool('sandbox_execute')).toThrow('Unknown tool: sandbox_execute')
    expect(() => chooseToolsets('execute,sandboxes', testProfile)).toThrow('toolsets must list any of execute, files')
  })

  it('has unique names that every client accepts', () => {
    const names = productInventory.tools.map(({ name }) => name)
    expect(new Set(names).size).toBe(names.length)
    for (const name of names) expect(name).toMatch(/^[A-Za-z0-9_]{1,64}$/)
  })
})

describe('invalid arguments', () => {
  const check = compile(SandboxExecuteInput, { lenient: true, aliases: { language: toLanguage } })
  const cases: [unknown, string][] = [
    [{}, 'code is required and missing.'],
    [{ code: 1 }, 'code must be a string; it is the number 1.'],
    [{ code: null }, 'code must be a string; it is null.'],
    [{ code: 'x', language: 'ruby' }, 'language must be one of python, node, typescript, bash; it is "ruby".'],
    [{ code: 'x', timeout: '5' }, 'timeout must be an integer; it is "5".'],
    [{ code: 'x', timeout: 1.5 }, 'timeout must be an integer; it is the number 1.5.'],
    [{ code: 'x', timeout: 0 }, 'timeout must be at least 1; it is the number 0.'],
    [{ code: 'x', timeout: 3601 }, 'timeout must be at most 3600; it is the number 3601.'],
    [{ code: 'x', env_vars: { A: 1 } }, 'env_vars.A must be a string; it is the number 1.'],
    [{ code: 'x', env_vars: [] }, 'env_vars must be an object; it is an array.'],
    [{ code: 'x', metadata: 'm' }, 'metadata must be an object; it is "m".'],
    [{ code: 'x', threadId: 't' }, '"threadId" is not a known field; did you mean thread_id.'],
    [{ code: 'x', 'thread-id': 't' }, '"thread-id" is not a known field; did you mean thread_id.'],
    [{ code: 'x', timeout_ms: 9 }, '"timeout_ms" is not a known field; did you mean timeout.'],
    [{ code: 'x', lang: 'bash' }, '"lang" is not a known field; did you mean language.'],
    [{ code: 'x', metadata: 9007199254740993n }, 'metadata must be an object'],
    [{ source: 'x' }, 'code is required and missing.'],
    ['text', 'arguments must be an object; it is "text".'],
    [JSON.parse('{"__proto__":{"code":"x"}}'), 'code is required and missing.'],
  ]
  for (const [given, message] of cases) {
    it(`are reported by field: ${message.slice(0, 50)}`, () => {
      expect(() => check(given)).toThrow(message)
    })
  }

  it('are ignored with a warning where their names are unknown', () => {
    const warnings: string[] = []
    const given = JSON.parse('{"code":"x","sessionId":"s","action":"y","mode":"fast","__proto__":{"timeout":1}}')
    const input = check(given, (warning) => warnings.push(warning))
    expect(input).toEqual({ code: 'x' })
    expect(input.timeout).toBeUndefined()
    expect(warnings).toEqual([
      expect.stringMatching(
        /^Ignored unknown arguments: "sessionId", "action", "mode", "__proto__"\. Known are code, /,
      ),
    ])
    check(Object.fromEntries([['code', 'x'], ...Array.from({ length: 500 }, (_, n) => [`zz${n}`, n])]), (warning) => {
      expect(warning.length).toBeLessThan(400)
      expect(warning).toContain('and 492 more')
    })
  })

  it('are absent where an optional one is null, or an ID is empty', () => {
    const names = Object.keys(SandboxExecuteInput.properties).filter((name) => name !== 'code')
    expect(check({ code: 'x', ...Object.fromEntries(names.map((name) => [name, null])) })).toEqual({ code: 'x' })
    expect(check({ code: 'x', thread_id: '', idempotency_key: '', subject: '', language: '' })).toEqual({ code: 'x' })
    expect(check({ code: 'x', stdin: '' })).toEqual({ code: 'x', stdin: '' })
  })

  it('name a language in any of its common forms', () => {
    const forms = {
      python: 'py Python3 PYTHON',
      node: 'js JavaScript nodejs Node',
      typescript: 'ts TypeScript',
      bash: 'sh SHELL Bash',
    }
    for (const [language, names] of Object.entries(forms))
      for (const name of names.split(' ')) expect(check({ code: 'x', language: name }).language).toBe(language)
  })

  it('do not include the protocol metadata that some clients repeat', () => {
    expect(check({ code: 'x', _meta: { progressToken: 1 } })).toEqual({ code: 'x' })
  })

  it('are quoted in part only, however long they are', () => {
    expect(() => check({ code: 'x', language: 'r'.repeat(10_000) })).toThrow(/^.{0,200}$/)
  })
})
