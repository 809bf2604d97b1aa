import { chmodSync, copyFileSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { parse, stringify } from 'yaml'
import { builtProgram } from '../support/glovebox.ts'
import { runCommand } from '../support/keys.ts'
import { openStory } from '../support/story.ts'

const story = openStory(['--no-dev', '--outbound-allow', '127.0.0.1'], { program: builtProgram })
const directory = mkdtempSync(join(tmpdir(), 'glovebox-declared-'))
const path = (name: string) => join(directory, name)
const sample = new URL('../../deploy/organizations.yaml', import.meta.url)
const secrets = ['ACME_PARTNER_TOKEN=partner-token-1', 'ACME_SIGNING_KEY=signing-key-1', 'ACME_EXA_KEY=exa-key-1']

interface Declared {
  orgs: Record<string, Record<string, Record<string, Record<string, unknown>>>>
}

/** The sample with changes; its upstream is at a port of this machine at which nothing answers. */
function declare(change: (declared: Declared) => void = () => {}): string {
  const declared = parse(readFileSync(sample, 'utf8')) as Declared
  declared.orgs.acme!.upstreams!['exa/exa']!.url = 'http://127.0.0.1:9/mcp'
  change(declared)
  writeFileSync(path('glovebox.yaml'), stringify(declared))
  return path('glovebox.yaml')
}

const withFile = (command: string, file: string, ...words: string[]) =>
  runCommand(story.place, [command, '-f', file, '--outbound-allow', '127.0.0.1', ...words], ['env', ...secrets])
const apply = (file: string, ...words: string[]) => withFile('apply', file, ...words)
const diff = (file: string, ...words: string[]) => withFile('diff', file, ...words)

const run = async (secret: string, code: string, more: object = {}) => {
  const response = await fetch(`${story.url}/v1/sandbox/execute`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': secret },
    body: JSON.stringify({ language: 'bash', code, ...more }),
  })
  return { status: response.status, body: (await response.json()) as { stdout?: string } }
}

afterAll(() => rmSync(directory, { recursive: true }))

describe('a declaration', () => {
  let keys: Record<string, string> = {}

  it('creates organizations with everything that the sample of deploy/ contains', async () => {
    const file = declare()
    expect(await diff(file)).toMatchObject({ code: 1, stdout: expect.stringContaining('+ key acme/build server') })
    const applied = await apply(file, '--secrets-to', path('keys.yaml'))
    expect(applied).toMatchObject({ code: 0 })
    expect(applied.stdout).toContain('+ organization beta\n')
    expect(applied.stderr).toContain('exa/exa: its tools could not be read')
    expect(statSync(path('keys.yaml')).mode & 0o777).toBe(0o600)
    keys = parse(readFileSync(path('keys.yaml'), 'utf8')) as Record<string, string>
    expect(Object.keys(keys).toSorted()).toEqual(['acme/build server', 'acme/notebooks', 'beta/agents'])
    expect(applied.stdout + applied.stderr).not.toContain(keys['beta/agents'])
    const answer = await run(
      keys['acme/notebooks']!,
      'echo $TEAM $SIGNING_KEY $STAGE; echo kept >/volumes/datasets/file',
    )
    expect(answer.body.stdout).toBe('analysis signing-key-1 production\n')
    expect((await run(keys['acme/build server']!, 'cat /volumes/datasets/file')).body.stdout).toBe('kept\n')
  })

  it('changes nothing when it is applied again', async () => {
    const file = declare()
    expect(await diff(file)).toMatchObject({ code: 0, stdout: '' })
    expect(await apply(file)).toMatchObject({ code: 0, stdout: '', stderr: 'glovebox: everything is as declared\n' })
  })

  it('changes what differs, and keeps the secrets of keys', async () => {
    const file = declare(({ orgs }) => {
      orgs.acme!.keys!.notebooks!.env_vars = { STAGE: 'test' }
      orgs.acme!.profiles!.analysis!.env = { TEAM: 'research' }
      orgs.acme!.limits = { concurrent_runs: 9 } as never
      orgs.acme!.volumes!.datasets!.quota_bytes = '3GiB'
    })
    const { stdout } = await apply(file)
    expect(stdout.split('\n').toSorted()).toEqual([
      '',
      '~ key acme/notebooks (env_vars)',
      '~ limits acme/acme (concurrent_runs, runs_per_minute, run_seconds_per_day, storage_bytes, sandboxes)',
      '~ profile acme/analysis (env)',
      '~ volume acme/datasets (quota_bytes)',
    ])
    await expect
      .poll(async () => (await run(keys['acme/notebooks']!, 'echo $TEAM $STAGE')).body.stdout, { timeout: 10_000 })
      .toBe('research test\n')
  })

  it('names all mistakes with their lines, and changes nothing', async () => {
    const file = path('wrong.yaml')
    writeFileSync(
      file,
      [
        'orgs:',
        '  gamma:',
        '    limits: { concurrent_runs: 1 }',
        '    profiles:',
        '      small:',
        '        languages: [cobol]',
        '        limit_memory: lots',
        '    upstreams:',
        '      exa/exa:',
        '        url: http://10.0.0.1/mcp',
        '        timeout_ms: 1',
        '    keys:',
        '      agents:',
        '        profile: absent',
        '        tools: [no_such_tool]',
        '        expires_at: 2001-01-01T00:00:00Z',
        '      others: { profile: small, namespaces: [] }',
      ].join('\n'),
    )
    const { code, stderr } = await apply(file)
    expect(code).toBe(64)
    const places = stderr.split('\n').map((line) => /wrong\.yaml:(\d+:\d+): (.*)/.exec(line)?.slice(1))
    expect(places.flatMap((place) => place?.[0] ?? [])).toEqual([
      '6:9',
      '7:9',
      '10:9',
      '11:9',
      '14:9',
      '15:9',
      '16:9',
      '17:33',
    ])
    expect(stderr).toContain('8 mistakes; nothing was changed')
    expect((await runCommand(story.place, ['orgs', 'list'])).stdout).not.toContain('gamma')
  })

  it.each([
    ['orgs: { acme: { keyz: {} } }', '1:17: orgs: acme: keyz: is not a known field; did you mean keys?'],
    ['orgs: [acme]', '1:1: orgs: must be an object; it is an array'],
    ['orgs: { acme: {}, acme: {} }', '1:19: Map keys must be unique'],
    ['orgs: { a: { limits: { storage_bytes: much } } }', '1:24: orgs: a: limits: storage_bytes: must be one of'],
    ['port: 5555', '1:1: port: is not a known field'],
    ['orgs: { a: { secrets: { T: { hosts: [x.example], value: text } } } }', 'value: is a secret; refer to it'],
    ['orgs: { a: { keys: { k: { env_vars: { API_KEY: text } } } } }', 'API_KEY: is a secret; refer to it'],
    ['orgs: { a: { keys: { k: { env_vars: { A: { env: NOT_SET } } } } } }', 'the variable NOT_SET is not set'],
    [
      'orgs: { a: { upstreams: { v/n: { program: {}, env: { A: { env: NOT_SET } } } } } }',
      'the variable NOT_SET is not set',
    ],
    ['orgs: { a: { keys: { k: { env_vars: { A: { file: absent } } } } } }', 'A: cannot be read: ENOENT'],
  ])('is refused where it is %s', async (text, problem) => {
    writeFileSync(path('wrong.yaml'), text)
    const { code, stderr } = await apply(path('wrong.yaml'))
    expect({ code, stderr }).toEqual({ code: 64, stderr: expect.stringContaining(problem) })
  })

  it('deletes what is not declared only with --prune, after it was confirmed, and never threads', async () => {
    const thread = { thread_id: 'work' }
    await run(keys['acme/build server']!, 'echo mine >file', thread)
    const file = declare(({ orgs }) => {
      delete orgs.acme!.keys!.notebooks
      delete orgs.acme!.profiles!.analysis
      delete orgs.beta!.keys
      delete orgs.acme!.volumes!.datasets!.quota_bytes
      orgs.acme!.upstreams = {}
      orgs.acme!.keys!['build server']!.tools = ['sandbox_execute']
    })
    expect((await apply(file)).stdout).not.toContain('- ')
    const unasked = await apply(file, '--prune')
    expect(unasked).toMatchObject({ code: 64, stderr: expect.stringContaining('use --yes to delete 3') })
    expect((await run(keys['acme/notebooks']!, 'true')).status).toBe(200)
    expect((await apply(file, '--prune', '--yes')).stdout.split('\n').filter((line) => line.startsWith('-'))).toEqual([
      '- key acme/notebooks',
      '- profile acme/analysis',
      '- upstream acme/exa/exa',
    ])
    expect((await run(keys['acme/notebooks']!, 'true')).status).toBe(401)
    expect((await run(keys['beta/agents']!, 'true')).status).toBe(200)
    expect((await run(keys['acme/build server']!, 'cat file', thread)).body.stdout).toBe('mine\n')
  })

  it('of more than a thousand things is refused, since others wait for the database', async () => {
    const many = Object.fromEntries(Array.from({ length: 1_001 }, (_, n) => [`key ${n}`, {}]))
    expect(await apply(declare(({ orgs }) => (orgs.many = { keys: many })))).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('apply at most 1000 at once'),
    })
  })

  it('appends no secret to a file that others can read', async () => {
    writeFileSync(path('open.yaml'), '')
    chmodSync(path('open.yaml'), 0o644)
    const file = declare(({ orgs }) => (orgs.delta = { keys: { agents: {} } }))
    expect(await apply(file, '--secrets-to', path('open.yaml'))).toMatchObject({ code: 78 })
    expect((await runCommand(story.place, ['orgs', 'list'])).stdout).not.toContain('delta')
  })
})

describe('a declaration that is sent to a server', () => {
  const token = async (...words: string[]) => {
    const { stdout } = await runCommand(story.place, ['tokens', 'create', '--name', 'ops', ...words])
    writeFileSync(path('token'), stdout, { mode: 0o600 })
    return ['--url', story.url, '--key-file', path('token')]
  }

  it('is applied with an admin token, and its mistakes are shown with their lines', async () => {
    const remote = await token('--role', 'admin')
    writeFileSync(path('remote.yaml'), 'orgs:\n  epsilon:\n    keys: { agents: {} }\n')
    const applied = await apply(path('remote.yaml'), ...remote)
    expect(applied.stdout).toMatch(/^\+ organization epsilon\n\+ key epsilon\/agents\nepsilon\/agents {2}sk-\S+\n$/)
    expect((await run(applied.stdout.trim().split('  ').at(-1)!, 'true')).status).toBe(200)
    expect(await diff(path('remote.yaml'), ...remote)).toMatchObject({ code: 0, stdout: '' })
    writeFileSync(path('remote.yaml'), 'orgs:\n  epsilon:\n    keys: { agents: { tools: [none] } }\n')
    const wrong = await apply(path('remote.yaml'), ...remote)
    expect(wrong).toMatchObject({ code: 64, stderr: expect.stringContaining('remote.yaml:3:23: ') })
  })

  it('needs the rights for each of its changes', async () => {
    copyFileSync(sample, path('sample.yaml'))
    const reader = await token('--role', 'member')
    const answer = await apply(path('sample.yaml'), ...reader)
    expect(answer).toMatchObject({ code: 77, stderr: expect.stringContaining('role admin') })
  })

  it('of one organization sees and creates no other one', async () => {
    const own = await token('--role', 'admin', '--org', 'epsilon')
    writeFileSync(path('remote.yaml'), 'orgs:\n  acme: { keys: {} }\n  epsilon: { keys: { more: {} } }\n')
    const refused = await apply(path('remote.yaml'), ...own)
    expect(refused.stderr).toContain('remote.yaml:2:3: orgs: acme: ')
    writeFileSync(path('remote.yaml'), 'orgs:\n  epsilon: { keys: { more: {} } }\n')
    expect((await apply(path('remote.yaml'), ...own)).stdout).toContain('+ key epsilon/more')
  })
})
