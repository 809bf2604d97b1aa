/** The package cache of a server, with pip and npm in runs of several organizations. */
import { chmodSync, lstatSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Execution, post } from '../support/calls.ts'
import { type Glovebox, type Place, until } from '../support/glovebox.ts'
import { newKey, type OwnKey, runCommand } from '../support/keys.ts'
import { indexesOfThisMachine, printed } from '../support/machine-network.ts'
import { openPackageIndex, type PackageIndex } from '../support/package-index.ts'
import { disposablePlaces } from '../support/story.ts'

const newPlace = disposablePlaces()
const profiles = ['packages', 'public', 'listed', 'unlisted', 'indexes', 'none', 'installed'] as const
type Name = (typeof profiles)[number]
const host = 'packages.glovebox.internal'
let place: Place
let server: Glovebox
let index: PackageIndex
const keys = {} as Record<Name | 'other', OwnKey>
let config: string

const text = (caches: object) => `
package_cache: ${JSON.stringify(caches)}
profiles:
  packages: { network: packages }
  public: { network: public }
  listed: { network: allow, network_allow: [${host}] }
  unlisted: { network: allow, network_allow: [other.example] }
  indexes: { network: packages, package_indexes: [other.example] }
  none: {}
  installed: { packages: { pip: [parting], npm: [greeting-node] } }
`

beforeAll(async () => {
  index = await openPackageIndex()
  place = newPlace()
  config = join(place.directory, 'glovebox.yaml')
  writeFileSync(config, text({ pip: index.env.PIP_INDEX_URL, npm: index.env.npm_config_registry }))
  chmodSync(config, 0o644)
  server = await place.start('--no-dev', '--config', config)
  for (const org of ['acme', 'other']) expect((await runCommand(place, ['orgs', 'create', org])).code).toBe(0)
  for (const profile of profiles)
    keys[profile] = await newKey(place, '--org', 'acme', '--profile', profile, '--config', config)
  keys.other = await newKey(place, '--org', 'other', '--profile', 'packages', '--config', config)
})
afterAll(() => index.close())

const call = (key: OwnKey, language: string, code: string) =>
  post<Execution>(`${server.url}/v1/sandbox/execute`, { language, code, timeout: 120, network: true }, key.headers)

async function run(key: OwnKey, code: string, language = 'bash'): Promise<Execution> {
  let answer = await call(key, language, code)
  await until(async () => {
    if (answer.status === 503) answer = await call(key, language, code)
    return answer.status !== 503
  }, 'the packages are installed')
  if (answer.status !== 200) throw new Error(`refused: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const pip = 'python3 -m pip install -q --no-cache-dir --target lib greeting && '
const versionOf = `${pip}PYTHONPATH=lib python3 -c 'import greeting; print(greeting.version)'`
const npm = `npm install --silent --cache /tmp/npm-cache greeting-node && ! grep -q glovebox package-lock.json && node -p "require('greeting-node')"`

const files = () => index.requests.filter((path) => /\.(?:whl|tgz)$/.test(path))

describe('the package cache', { timeout: 240_000 }, () => {
  it('serves pip and npm in runs, which need no configuration', async () => {
    expect(await run(keys.packages, versionOf)).toMatchObject({ stdout: '2.0\n', stderr: '', exit_code: 0 })
    const npmRun = await run(keys.packages, npm)
    expect(npmRun).toMatchObject({ stdout: expect.stringContaining('hello from npm\n'), exit_code: 0 })
    expect((npmRun as Execution & { network?: unknown }).network).toEqual([
      { host, port: 80, verdict: 'allowed', connections: expect.any(Number), bytes: expect.any(Number) },
    ])
    expect(files().length).toBe(3)
  })

  it('downloads nothing again for another run, policy or organization', async () => {
    index.requests.length = 0
    for (const key of [keys.other, keys.public, keys.listed]) {
      expect(await run(key, versionOf)).toMatchObject({ stdout: '2.0\n', exit_code: 0 })
      expect(await run(key, npm)).toMatchObject({ stdout: expect.stringContaining('hello from npm\n') })
    }
    expect(files()).toEqual([])
  })

  it('serves the installation of packages of profiles', async () => {
    const code = `python3 -c 'import parting; print(parting.version)'; node -p "require('greeting-node')"`
    expect(await run(keys.installed, code)).toMatchObject({ stdout: '1.0\nhello from npm\n' })
    expect(files()).toEqual(['/files/parting-1.0-py3-none-any.whl'])
  })

  it('shows in the metrics and in a runtime tool what it did', async () => {
    const { stdout } = await runCommand(place, ['tokens', 'create', '--role', 'member', '--name', 'metrics'])
    const headers = { authorization: `Bearer ${stdout.trim()}` }
    const read = async () => (await fetch(`${server.url}/metrics`, { headers })).text()
    const figure = (text: string, name: string) =>
      Number(
        text
          .split('\n')
          .find((line) => line.startsWith(`${name} `))
          ?.slice(name.length),
      )
    const cache = 'glovebox_package_cache'
    // The broker reports twice a second.
    await until(
      async () => figure(await read(), `${cache}_requests_total{manager="npm",outcome="kept"}`) > 0,
      'figures',
    )
    const text = await read()
    for (const manager of ['pip', 'npm']) {
      expect(figure(text, `${cache}_requests_total{manager="${manager}",outcome="document"}`)).toBeGreaterThan(0)
      expect(figure(text, `${cache}_requests_total{manager="${manager}",outcome="downloaded"}`)).toBeGreaterThan(0)
      const bytes = (direction: string) =>
        figure(text, `${cache}_bytes_total{manager="${manager}",direction="${direction}"}`)
      expect(bytes('fetched')).toBeGreaterThan(0)
      expect(bytes('served')).toBeGreaterThan(0)
    }
    expect(figure(text, `${cache}_used_bytes`)).toBeGreaterThan(0)
    expect(figure(text, `${cache}_size_bytes`)).toBeGreaterThan(figure(text, `${cache}_used_bytes`))
    expect(figure(text, 'glovebox_package_installations_total{outcome="installed"}')).toBe(1)
    expect(figure(text, 'glovebox_package_installation_seconds_total{outcome="installed"}')).toBeGreaterThan(0)
    expect(text).not.toMatch(/greeting|parting/)
    const body = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'cache_get_packages' } }
    const { result } = (
      await post<{ result: { structuredContent: object } }>(`${server.url}/runtime/rpc`, body, headers)
    ).body
    expect(result.structuredContent).toMatchObject({
      package_cache: { files: expect.any(Number), managers: { pip: { requests: { kept: expect.any(Number) } } } },
    })
  })

  it('serves programs that know no proxy, and nothing but packages', async () => {
    const code = `
get() { env -u http_proxy -u HTTP_PROXY -u all_proxy -u ALL_PROXY curl -s -o /dev/null -w '%{http_code} ' "$@"; }
get http://${host}/pip/greeting/
get http://${host}/pip/absent-one/
get http://${host}/
get -d x=1 http://${host}/npm/greeting-node
curl -s -x socks5h://127.0.0.1:3128 -o /dev/null -w '%{http_code} ' http://${host}/pip/greeting/
curl -s -p -o /dev/null -w '%{http_code}' http://${host}/pip/greeting/`
    expect(await run(keys.packages, code)).toMatchObject({ stdout: '200 404 404 405 200 200' })
  })

  it('is reached with no policy that does not list it', async () => {
    const code = `
curl -s -o /dev/null -w '%{http_code} ' http://${host}/pip/greeting/
curl -s --noproxy '*' -m 5 http://${host}/pip/greeting/
echo $? \${PIP_INDEX_URL:-unset} \${npm_config_registry:-unset}`
    for (const profile of ['unlisted', 'indexes'] as const)
      expect([profile, (await run(keys[profile], code)).stdout]).toEqual([profile, '403 6 unset unset\n'])
    expect((await run(keys.none, code)).stdout).toMatch(/^000 [67] unset unset\n$/)
  })

  it('belongs to the broker alone', () => {
    const directory = join(place.directory, 'home', 'package-cache')
    const { uid, mode } = lstatSync(directory)
    expect([uid, mode & 0o777]).toEqual([61_001, 0o700])
    expect(readdirSync(join(directory, 'kept')).filter((name) => name.startsWith('sha')).length).toBe(4)
  })

  it('serves what it has after a restart, without the index', async () => {
    await server.end()
    index.close()
    server = await place.start('--no-dev', '--config', config)
    expect(await run(keys.other, versionOf)).toMatchObject({ stdout: '2.0\n', exit_code: 0 })
    expect(await run(keys.other, npm)).toMatchObject({ stdout: expect.stringContaining('hello from npm\n') })
    const absent = await run(keys.other, 'python3 -m pip install --target lib --retries 0 absent-one')
    expect(absent).toMatchObject({ exit_code: 1, stderr: expect.stringContaining('absent-one') })
  })
})

const machine = await indexesOfThisMachine()
const registryTitle = machine.isReached ? 'with the registries of this machine' : 'with registries (none is reached)'

describe(`the package cache ${registryTitle}`, { timeout: 300_000 }, () => {
  it.skipIf(!machine.isReached)('installs packages of pip and npm', async () => {
    const here = newPlace()
    const file = join(here.directory, 'glovebox.yaml')
    const pipIndex = printed('python3', '-c', 'from pip._internal.models.index import PyPI; print(PyPI.simple_url)')
    const configured = printed('python3', '-m', 'pip', 'config', 'get', 'global.index-url')
    const hosts = machine.rules.map((rule) => rule.replace(/:(?:[*]|\d+)$/, '').replace(/^\[|\]$/g, ''))
    const caches = { pip: (configured || pipIndex).trim(), npm: machine.npmIndex }
    writeFileSync(file, `${text(caches)}outbound_allow: ${JSON.stringify([...new Set(hosts)])}\n`)
    const real = await here.start('--dev', '--config', file, '--network', 'packages')
    const code = `python3 -m pip install -q --no-cache-dir --target lib six && npm install --silent is-odd &&
      PYTHONPATH=lib python3 -c 'import six; print(six.PY3)' && node -p "require('is-odd')(3)"`
    const { body } = await post<Execution>(
      `${real.url}/v1/sandbox/execute`,
      { language: 'bash', code, timeout: 200 },
      {},
    )
    expect(body, body.stderr).toMatchObject({ stdout: expect.stringMatching(/True\ntrue\n$/), exit_code: 0 })
    const kept = readdirSync(join(here.directory, 'home', 'package-cache', 'kept'))
    expect(kept.filter((name) => name.startsWith('sha')).length).toBeGreaterThanOrEqual(2)
  })
})
