/** The package cache of a server, with apt in runs of several organizations. */
import { chmodSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Execution, post } from '../support/calls.ts'
import { type DebianRepository, debPath, openDebianRepository } from '../support/debian-repository.ts'
import { type Glovebox, type Place, until } from '../support/glovebox.ts'
import { newKey, type OwnKey, runCommand } from '../support/keys.ts'
import { indexesOfThisMachine, printed } from '../support/machine-network.ts'
import { disposablePlaces } from '../support/story.ts'

const newPlace = disposablePlaces()
let archive: DebianRepository
let place: Place
let server: Glovebox
let config: string
const keys = {} as Record<'acme' | 'other', OwnKey>

beforeAll(async () => {
  archive = await openDebianRepository(['one', 'two'])
  place = newPlace()
  config = join(place.directory, 'glovebox.yaml')
  writeFileSync(config, `package_cache: { apt: "${archive.url}" }\nprofiles: { packages: { network: packages } }\n`)
  chmodSync(config, 0o644)
  server = await place.start('--no-dev', '--config', config)
  for (const org of ['acme', 'other'] as const) {
    expect((await runCommand(place, ['orgs', 'create', org])).code).toBe(0)
    keys[org] = await newKey(place, '--org', org, '--profile', 'packages', '--config', config)
  }
})
afterAll(() => archive.close())

/** Runs apt with the source that docs/network.md shows. */
async function run(key: OwnKey, code: string): Promise<Execution & { network: object[] }> {
  const source = `
echo ${archive.key.toString('base64')} | base64 -d >archive.gpg
echo "deb [signed-by=$HOME/archive.gpg] http://packages.glovebox.internal/apt stable main" >archive.list
apt() { apt-get -qq -o Dir::Etc::sourcelist="$HOME/archive.list" -o Dir::Etc::sourceparts=- "$@"; }
`
  const body = { language: 'bash', code: source + code, timeout: 120, network: true }
  const answer = await post<Execution & { network: object[] }>(`${server.url}/v1/sandbox/execute`, body, key.headers)
  if (answer.status !== 200) throw new Error(`refused: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const textOf = (name: string) => `dpkg-deb -x ${name}_*.deb root && head -1 root/usr/share/${name}/text`
const install = `apt update && apt download one && ${textOf('one')}`
const debs = () => archive.requests.filter((path) => path.endsWith('.deb'))
const kept = () =>
  readdirSync(join(place.directory, 'home', 'package-cache', 'kept')).filter((name) => name.startsWith('sha'))

describe('the package cache for apt', { timeout: 240_000 }, () => {
  it('serves signed packages to runs, and downloads nothing again for another organization', async () => {
    const first = await run(keys.acme, install)
    expect(first, first.stderr).toMatchObject({ stdout: 'hello from one\n', exit_code: 0 })
    expect(first.network).toEqual([
      expect.objectContaining({ host: 'packages.glovebox.internal', port: 80, verdict: 'allowed' }),
    ])
    expect(debs()).toEqual([debPath('one')])
    archive.requests.length = 0
    expect(await run(keys.other, install)).toMatchObject({ stdout: 'hello from one\n', exit_code: 0 })
    expect(archive.requests).toEqual([])
    // The list by hash, and the package.
    expect(kept().length).toBe(2)
  })

  it('keeps no package with another content than the list gives, and apt refuses it', async () => {
    const whole = archive.files.get(debPath('two'))!
    archive.files.set(debPath('two'), Buffer.from(whole).fill('y', 290_000, 290_100))
    const changed = await run(keys.acme, 'apt update && apt download two')
    expect(changed).toMatchObject({ stderr: expect.stringContaining('Failed to fetch'), exit_code: 100 })
    expect(kept().length).toBe(2)
    archive.files.set(debPath('two'), whole)
    const repaired = await run(keys.acme, `apt update && apt download two && ${textOf('two')}`)
    expect(repaired).toMatchObject({ stdout: 'hello from two\n', exit_code: 0 })
    expect(kept().length).toBe(3)
  })

  it('passes on signed documents unchanged, so that apt refuses those of another key', async () => {
    const code = `head -c -50 archive.gpg >broken && mv broken archive.gpg; apt update; apt download one; ls *.deb`
    const { stdout, stderr } = await run(keys.acme, code)
    expect(stdout).toBe('')
    expect(stderr).toMatch(/not signed|NO_PUBKEY|public key/)
  })

  it('does not keep what no list names', async () => {
    const code = `curl -sS http://packages.glovebox.internal/apt/${debPath('unlisted')} | wc -c`
    archive.requests.length = 0
    for (const key of [keys.acme, keys.other])
      expect((await run(key, code)).stdout.trim()).toBe(`${archive.files.get(debPath('unlisted'))!.length}`)
    expect(debs()).toEqual([debPath('unlisted'), debPath('unlisted')])
    expect(kept().length).toBe(3)
  })

  it('serves what it has after a restart, without the archive', async () => {
    await server.end()
    archive.close()
    server = await place.start('--no-dev', '--config', config)
    expect(await run(keys.other, install)).toMatchObject({ stdout: 'hello from one\n', exit_code: 0 })
    expect((await run(keys.other, 'apt update && apt download unlisted')).exit_code).not.toBe(0)
  })
})

const machine = await indexesOfThisMachine()
const [address = ''] = printed('apt-get', 'indextargets', '--format', '$(REPO_URI)').split('\n')
const title = machine.isReached && address ? 'with the archive of this machine' : 'with an archive (none is reached)'

describe(`the package cache for apt ${title}`, { timeout: 300_000 }, () => {
  it.skipIf(!machine.isReached || address === '')(
    'is used by apt in runs and for packages of profiles, without any configuration',
    async () => {
      const here = newPlace()
      const file = join(here.directory, 'glovebox.yaml')
      const hosts = machine.rules.map((rule) => rule.replace(/:(?:[*]|\d+)$/, '').replace(/^\[|\]$/g, ''))
      writeFileSync(
        file,
        `package_cache: { apt: "${address}" }\noutbound_allow: ${JSON.stringify([...new Set(hosts)])}\n`,
      )
      const flags = ['--dev', '--config', file, '--network', 'packages', '--packages', 'apt=hello']
      const { url } = await here.start(...flags)
      const call = (code: string) => {
        const body = { language: 'bash', code, timeout: 200, network: true }
        return post<Execution & { network: object[] }>(`${url}/v1/sandbox/execute`, body, {})
      }
      let installed = await call('hello')
      await until(async () => {
        if (installed.status === 503) installed = await call('hello')
        return installed.status !== 503
      }, 'the package is installed')
      expect(installed.body).toMatchObject({ stdout: 'Hello, world!\n' })
      const kept = readdirSync(join(here.directory, 'home', 'package-cache', 'kept'))
      const { body } = await call('apt-get update -qq 2>&1; apt-get download -qq hello && sha256sum *.deb')
      expect(kept).toContain(`sha256-${/^([0-9a-f]{64}) +hello_.*deb$/m.exec(body.stdout)?.[1]}`)
      expect(body.network).toContainEqual(expect.objectContaining({ host: 'packages.glovebox.internal' }))
    },
  )
})
