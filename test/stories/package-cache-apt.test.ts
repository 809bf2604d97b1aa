/** The package cache of a server, with apt in runs of several organizations. */
import { chmodSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Execution, post } from '../support/calls.ts'
import { type DebianRepository, debPath, openDebianRepository } from '../support/debian-repository.ts'
import type { Glovebox, Place } from '../support/glovebox.ts'
import { newKey, type OwnKey, runCommand } from '../support/keys.ts'
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
