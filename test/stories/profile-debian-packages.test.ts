/** Debian packages that profiles list: real ones, from the archives of this machine. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Execution, post } from '../support/calls.ts'
import { type Glovebox, until } from '../support/glovebox.ts'
import { newKey, type OwnKey, runCommand } from '../support/keys.ts'
import { indexesOfThisMachine, printed } from '../support/machine-network.ts'
import { disposablePlaces } from '../support/story.ts'

const machine = await indexesOfThisMachine()
const lacks = (name: string) => !printed('dpkg', '--status', name).includes('install ok installed')
const isPossible =
  machine.isReached &&
  printed('apt-get', '--version') !== '' &&
  ['qrencode', 'libqrencode4', 'python3-snappy', 'sl'].every(lacks)

const place = disposablePlaces()
const profiles = ['tools', 'absent', 'plain'] as const
const keys = {} as Record<(typeof profiles)[number], OwnKey>
let server: Glovebox

type Refused = { error: string; message: string }

const call = (profile: (typeof profiles)[number], language: string, code: string) =>
  post<Execution & Refused>(`${server.url}/v1/sandbox/execute`, { language, code }, keys[profile].headers)

/** Calls as soon as the packages of the profile are installed, or could not be. */
async function run(profile: (typeof profiles)[number], language: string, code: string) {
  let answer = await call(profile, language, code)
  await until(async () => {
    if (answer.status === 503) answer = await call(profile, language, code)
    return answer.status !== 503
  }, `the packages of ${profile} are installed`)
  return answer
}

describe.skipIf(!isPossible)('the Debian packages of a profile', { timeout: 300_000 }, () => {
  beforeAll(async () => {
    const here = place()
    const config = join(here.directory, 'glovebox.yaml')
    const text = `
network: none
package_indexes: ${JSON.stringify(machine.rules)}
packages_builds_per_org: 4
packages_builds_max: 4
packages_size: 256MiB
profiles:
  tools: { packages: { apt: [qrencode, python3-snappy, sl, sudo] } }
  absent: { packages: { apt: [absent-one] } }
  plain: {}
`
    writeFileSync(config, text, { mode: 0o644 })
    server = await here.start('--no-dev', '--config', config)
    expect((await runCommand(here, ['orgs', 'create', 'acme'])).code).toBe(0)
    for (const profile of profiles) {
      keys[profile] = await newKey(here, '--org', 'acme', '--profile', profile, '--config', config)
    }
  })

  it('are commands with the shared libraries that the image lacks', async () => {
    const code = `
command -v qrencode sl
qrencode -t ASCII glovebox | grep -c '##'
ldd "$(command -v qrencode)" | grep -o '/opt/packages/apt/usr/lib/[a-z0-9_-]*/libqrencode.so.4'
ldd "$(command -v qrencode)" | grep -c 'not found'
env | grep -c LD_LIBRARY_PATH`
    const { body } = await run('tools', 'bash', code)
    expect(body).toMatchObject({ stderr: '' })
    expect(body.stdout).toMatch(
      /^\/opt\/packages\/bin\/qrencode\n\/opt\/packages\/bin\/sl\n\d\d\n\/opt\/packages\/apt\/usr\/lib\/\S+\/libqrencode\.so\.4\n0\n0\n$/,
    )
  })

  it('are modules of Python, also in an interpreter that was started before', async () => {
    const code = `
import snappy, subprocess, sys
print(snappy.uncompress(snappy.compress(b'glovebox')).decode(), snappy.__file__)
print(subprocess.run([sys.executable, '-c', 'import snappy; print(snappy.__name__)'], capture_output=True, text=True).stdout)`
    for (let n = 0; n < 3; n++) {
      expect((await run('tools', 'python', code)).body).toMatchObject({
        stdout: 'glovebox /opt/packages/apt/usr/lib/python3/dist-packages/snappy/__init__.py\nsnappy\n\n',
        stderr: '',
      })
    }
  })

  it.skipIf(!lacks('sudo'))('have no set-user-ID bits', async () => {
    const { body } = await run('tools', 'bash', 'ls /opt/packages/apt/usr/bin/sudo; find /opt/packages/ -perm /6000')
    expect(body.stdout).toBe('/opt/packages/apt/usr/bin/sudo\n')
  })

  it('cannot be changed by a run, and are not seen by runs of other profiles', async () => {
    const code = `
cd /opt/packages/apt
for attack in 'touch new' 'rm usr/bin/qrencode' 'chmod 777 usr' 'cp /bin/sh usr/bin/qrencode' 'mv usr usr2' 'ln -sf /tmp lib'; do
  eval "$attack" 2>/tmp/said && echo "done: $attack"
  grep -o 'Read-only file system' /tmp/said | head -1
done`
    expect((await run('tools', 'bash', code)).body.stdout).toBe('Read-only file system\n'.repeat(6))
    const other = await run('plain', 'bash', 'command -v qrencode; ls /opt/packages/ 2>&1')
    expect(other.body.stdout).toContain('No such file')
  })

  it('that do not exist are refused with what apt said', async () => {
    expect(await run('absent', 'bash', 'true')).toMatchObject({
      status: 502,
      body: {
        error: 'configuration_error',
        message: expect.stringMatching(/apt exited with code 100; it wrote: .*Unable to locate package absent-one/),
      },
    })
  })
})
