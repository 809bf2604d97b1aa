/** Packages that profiles list: installed once, then read-only in each run. */

import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Execution, post } from '../support/calls.ts'
import { type Glovebox, type Place, until } from '../support/glovebox.ts'
import { newKey, type OwnKey, runCommand } from '../support/keys.ts'
import { openPackageIndex, type PackageIndex } from '../support/package-index.ts'
import { disposablePlaces } from '../support/story.ts'

const newPlace = disposablePlaces()
const profiles = ['both', 'other', 'wrong', 'plain', 'held', 'large'] as const
let place: Place
let server: Glovebox
let index: PackageIndex
const keys = {} as Record<(typeof profiles)[number], OwnKey>
let config: string

function writeConfig(both = 'pip: [greeting==1.0], npm: [greeting-node@^1.0.0]'): void {
  const text = `
network: none
package_indexes: [${JSON.stringify(index.rule)}]
env: ${JSON.stringify(index.env)}
packages_builds_per_org: 4
packages_builds_max: 4
packages_size: 64MiB
profiles:
  both: { packages: { ${both} } }
  other: { packages: { pip: [parting] } }
  wrong: { packages: { pip: [absent-one] } }
  held: { packages: { pip: ["greeting>=1,<2", parting] } }
  large: { packages: { pip: [large] } }
  plain: {}
`
  writeFileSync(config, text)
}

beforeAll(async () => {
  index = await openPackageIndex()
  place = newPlace()
  config = join(place.directory, 'glovebox.yaml')
  writeConfig()
  chmodSync(config, 0o644)
  server = await place.start('--no-dev', '--config', config)
  expect((await runCommand(place, ['orgs', 'create', 'acme'])).code).toBe(0)
  for (const profile of profiles) {
    keys[profile] = await newKey(place, '--org', 'acme', '--profile', profile, '--config', config)
  }
})
afterAll(() => index.close())

type Refused = { error: string; message: string }

const call = (profile: (typeof profiles)[number], language: string, code: string) =>
  post<Execution & Refused>(`${server.url}/v1/sandbox/execute`, { language, code }, keys[profile].headers)

/** Runs code as soon as the packages of its profile are installed. */
async function run(profile: (typeof profiles)[number], language: string, code: string): Promise<Execution> {
  let answer = await call(profile, language, code)
  await until(async () => {
    if (answer.status !== 503) return true
    answer = await call(profile, language, code)
    return answer.status !== 503
  }, `the packages of ${profile} are installed`)
  if (answer.status !== 200) throw new Error(`refused: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const layers = (): { state: string; profile: string; id: string }[] => {
  const database = new DatabaseSync(join(place.directory, 'home', 'front', 'glovebox.db'), { readOnly: true })
  try {
    return database.prepare('select state, profile, id from package_layers').all() as never
  } finally {
    database.close()
  }
}

describe('the packages of a profile', { timeout: 240_000 }, () => {
  it('are installed at the first call, which is answered with 503 and a time to retry', async () => {
    let release = () => {}
    index.hold = new Promise((resolve) => (release = resolve))
    const first = await call('held', 'python', 'import greeting')
    expect(first).toMatchObject({
      status: 503,
      body: {
        error: 'unavailable',
        message: expect.stringContaining('packages of the profile held are being installed'),
      },
    })
    expect(Number(first.headers.get('retry-after'))).toBeGreaterThan(0)
    expect((await call('held', 'python', 'import greeting')).status).toBe(503)
    // A profile without packages waits for nothing.
    expect(await run('plain', 'python', 'print(1)')).toMatchObject({ stdout: '1\n' })
    release()
    const code = 'import greeting, parting; print(greeting.version, parting.version)'
    expect(await run('held', 'python', code)).toMatchObject({ stdout: '1.0 1.0\n', stderr: '' })
  })

  it('are imported by runs of every language, which have no network', async () => {
    const python = `
import greeting, socket, subprocess, sys
print(greeting.version, greeting.__file__)
print(subprocess.run([sys.executable, '-c', 'import greeting; print(greeting.version)'], capture_output=True, text=True).stdout)
try:
    socket.create_connection(('${index.rule.split('/')[0]}', ${index.rule.split(':')[1]}), 2)
except OSError:
    print('no network')`
    // In an interpreter that is started for the run, and in one that was started before.
    for (let n = 0; n < 3; n++) {
      expect(await run('both', 'python', python)).toMatchObject({
        stdout: '1.0 /opt/packages/python/site-packages/greeting.py\n1.0\n\nno network\n',
      })
      expect(await run('both', 'node', "console.log(require('greeting-node'))")).toMatchObject({
        stdout: 'hello from npm\n',
      })
    }
    const typescript = "import words from 'words-node'\nconst text: string = words.hello\nconsole.log(text)"
    expect(await run('both', 'typescript', typescript)).toMatchObject({ stdout: 'hello from npm\n' })
    const commands = 'say-greeting && say-greeting-node && cd /tmp && node -e "console.log(require(\'greeting-node\'))"'
    expect(await run('both', 'bash', commands)).toMatchObject({
      stdout: 'greeting 1.0\nhello from npm\nhello from npm\n',
    })
  })

  it('are found by the processes of a named sandbox of the profile', async () => {
    const url = `${server.url}/v1/sandboxes`
    const { headers } = keys.both
    expect((await post(url, { name: 'lab' }, headers)).status).toBe(201)
    const command = { command: 'python3', args: ['-c', 'import greeting; print(greeting.version)'] }
    const ran = await post<{ stdout: string }>(`${url}/lab/commands`, command, headers)
    expect(ran.body).toMatchObject({ stdout: '1.0\n' })
    await fetch(`${url}/lab`, { method: 'DELETE', headers })
  })

  it('are not seen by runs of profiles with other packages', async () => {
    const code = `
import importlib.util, os
print([name for name in ('greeting', 'parting') if importlib.util.find_spec(name)], os.path.exists('/opt/packages'))`
    expect(await run('both', 'python', code)).toMatchObject({ stdout: "['greeting'] True\n" })
    expect(await run('other', 'python', code)).toMatchObject({ stdout: "['parting'] True\n" })
    expect(await run('plain', 'python', code)).toMatchObject({ stdout: '[] False\n' })
    expect(await run('other', 'node', "require('greeting-node')")).toMatchObject({ exit_code: 1 })
  })

  it('cannot be changed by a run', async () => {
    const code = `
cd /opt/packages
for attack in 'touch new' 'rm -r python' 'chmod 777 .' 'cp /etc/passwd python/site-packages/greeting.py' 'mv bin bin2' \\
    'ln -s /tmp node/x' 'sh -c "echo >>python/site-packages/greeting.py"'; do
  eval "$attack" 2>/tmp/said && echo "done: $attack"
  grep -o 'Read-only file system' /tmp/said | head -1
done`
    const { stdout } = await run('both', 'bash', code)
    expect(stdout).toBe('Read-only file system\n'.repeat(7))
    expect(await run('both', 'python', 'import greeting; print(greeting.version)')).toMatchObject({ stdout: '1.0\n' })
  })

  it('are installed once', async () => {
    const before = index.requests.length
    await run('both', 'python', 'import greeting')
    expect(index.requests.length).toBe(before)
    expect(index.requests.filter((path) => path.endsWith('/greeting-node-1.0.0.tgz')).length).toBe(1)
  })

  it('are installed for each organization alone', async () => {
    expect((await runCommand(place, ['orgs', 'create', 'umbrella'])).code).toBe(0)
    const { headers } = await newKey(place, '--org', 'umbrella', '--profile', 'other', '--config', config)
    const before = index.requests.length
    const asked = { language: 'python', code: 'import parting; print(parting.version)' }
    const own = () => post<Execution>(`${server.url}/v1/sandbox/execute`, asked, headers)
    await until(async () => (await own()).status === 200, 'they are installed')
    expect(index.requests.length).toBeGreaterThan(before)
    const ids = layers().flatMap(({ profile, id }) => (profile === 'other' ? [id] : []))
    expect(new Set(ids).size).toBe(2)
  })

  it('that are larger than packages_size are refused', async () => {
    await expect(run('large', 'python', 'print(1)')).rejects.toThrow(/refused: 502 .*No space left on device/)
    await expect.poll(() => layers().find(({ profile }) => profile === 'large')?.state).toBe('failed')
    const id = layers().find(({ profile }) => profile === 'large')?.id ?? ''
    expect(volumesOnDisk().some((path) => path.includes(id))).toBe(false)
  })

  it('that cannot be installed are refused with what pip said, and tried again after a pause', async () => {
    await expect(run('wrong', 'python', 'print(1)')).rejects.toThrow(
      /refused: 502 .*absent-one.*could not be|could not be.*absent-one/,
    )
    const before = index.requests.length
    const again = await call('wrong', 'python', 'print(1)')
    expect(again).toMatchObject({
      status: 502,
      body: {
        error: 'configuration_error',
        message: expect.stringMatching(/pip exited with code 1; it wrote: .*No matching distribution/),
      },
    })
    // Health names the profile, not what the package manager wrote.
    const { stdout: token } = await runCommand(place, ['tokens', 'create', '--role', 'member', '--name', 'health'])
    const question = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'app_get_health' } }
    const bearer = { authorization: `Bearer ${token.trim()}` }
    const health = await post<{ result: { structuredContent: object } }>(`${server.url}/runtime/rpc`, question, bearer)
    const issue = { code: 'PACKAGES_FAILED', message: expect.stringMatching(/installed: .*\bwrong\b/) }
    expect(health.body.result.structuredContent).toMatchObject({
      issues: expect.arrayContaining([expect.objectContaining(issue)]),
    })
    expect(JSON.stringify(health.body)).not.toContain('absent-one')
    const pauseSeconds = Number(again.headers.get('retry-after'))
    expect(pauseSeconds).toBeGreaterThan(0)
    expect(pauseSeconds).toBeLessThanOrEqual(15)
    expect(index.requests.length).toBe(before)
    await until(async () => (await call('wrong', 'python', 'print(1)')).status === 503, 'the next attempt')
    await until(async () => (await call('wrong', 'python', 'print(1)')).status === 502, 'its failure')
    expect(index.requests.length).toBeGreaterThan(before)
  })

  it('are kept by a restart, and removed when no profile names them any more', async () => {
    await server.end()
    const requests = index.requests.length
    server = await place.start('--no-dev', '--config', config)
    expect(await run('both', 'python', 'import greeting; print(greeting.version)')).toMatchObject({ stdout: '1.0\n' })
    expect(index.requests.length).toBe(requests)
    const old = layers().find(({ profile }) => profile === 'both')?.id ?? ''
    expect(volumesOnDisk().some((path) => path.includes(old))).toBe(true)
    await server.end()
    writeConfig('pip: [greeting==2.0]')
    server = await place.start('--no-dev', '--config', config)
    expect(await run('both', 'python', 'import greeting; print(greeting.version)')).toMatchObject({ stdout: '2.0\n' })
    await until(() => !layers().some(({ id }) => id === old), 'the earlier packages are removed')
    expect(volumesOnDisk().some((path) => path.includes(old))).toBe(false)
  })

  it('are given up after packages_build_s, and installed no more at once than packages_builds_max', async () => {
    const here = newPlace()
    const file = join(here.directory, 'glovebox.yaml')
    const own = 'packages_build_s: 4\npackages_builds_max: 1\npackages_builds_per_org: 1\n'
    writeFileSync(file, readFileSync(config, 'utf8').replaceAll(/^packages_builds.*\n/gm, '') + own)
    let release = () => {}
    index.hold = new Promise((resolve) => (release = resolve))
    const slow = await here.start('--no-dev', '--config', file)
    await runCommand(here, ['orgs', 'create', 'acme'])
    const [other, held] = [
      await newKey(here, '--org', 'acme', '--profile', 'other', '--config', file),
      await newKey(here, '--org', 'acme', '--profile', 'held', '--config', file),
    ]
    const ask = ({ headers }: OwnKey) =>
      post<Refused>(`${slow.url}/v1/sandbox/execute`, { language: 'bash', code: 'true' }, headers)
    const before = index.requests.length
    expect((await ask(other)).status).toBe(503)
    expect((await ask(held)).status).toBe(503)
    await until(async () => (await ask(other)).status !== 503, 'the time is over')
    expect(await ask(other)).toMatchObject({
      status: 502,
      body: { message: expect.stringContaining('pip did not end within 4 seconds') },
    })
    expect(index.requests.slice(before).filter((path) => path.startsWith('/simple/greeting'))).toEqual([])
    release()
    await until(async () => (await ask(held)).status === 200, 'its turn')
  })

  it('with an option, a path or an address stop the start with a sentence', async () => {
    for (const [list, word] of [
      ['pip: ["--index-url=http://x"]', '--index-url=http://x'],
      ['pip: ["git+https://x/y"]', 'git+https://x/y'],
      ['pip: [./here]', './here'],
      ['npm: ["file:x"]', 'file:x'],
      ['npm: [x.tgz]', 'x.tgz'],
      ['npm: ["a b"]', 'a b'],
    ] as const) {
      const here = newPlace()
      const file = join(here.directory, 'glovebox.yaml')
      writeFileSync(file, `profiles:\n  bad: { packages: { ${list} } }\n`)
      const refused = here.launch('--config', file)
      expect((await refused.exited).code).not.toBe(0)
      expect(refused.complaint).toMatch(/packages in the file .*: .* is not a package of (pip|npm), such as/)
      expect(refused.complaint).toContain(JSON.stringify(word))
    }
  })
})

const volumesOnDisk = (): string[] =>
  readdirSync(join(place.directory, 'home', 'storage'), { recursive: true, encoding: 'utf8' })
