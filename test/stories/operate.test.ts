import { readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildWithinMs, builtPackage } from '../support/built-packages.ts'
import { debianImage, limitFlags, podman, rootWithinMs } from '../support/debian-root.ts'
import { until } from '../support/glovebox.ts'
import { previousPackage } from '../support/previous-package.ts'

const page = readFileSync(join(import.meta.dirname, '../../docs/operate.md'), 'utf8')
const image = await debianImage()
/** The end of titles of tests that are skipped because no packages can be downloaded; .ci/report.ts counts them apart. */
const reason = image === undefined ? ' (no package registry)' : ''
/** The certificate authority of Caddy. */
const trusted = '/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt'
const name = `glovebox-test-operate-${process.pid}`

/** The commands of a section of the page. */
function commandsOf(heading: string): string {
  const section = page.split(/^## /m).find((text) => text.startsWith(`${heading}\n`))
  const block = /^```sh\n(.*?)^```$/ms.exec(section ?? '')?.[1]
  if (block === undefined) throw new Error(`docs/operate.md has no commands for ${heading}`)
  return block
}

describe.skipIf(image === undefined)(`docs/operate.md, in a fresh Debian that was booted${reason}`, () => {
  const inside = (...words: string[]) => podman('exec', '--workdir', '/root', name, ...words)
  const bash = (script: string) => inside('bash', '-euo', 'pipefail', '-c', script)

  /** Runs the commands of a section as they are. Variables that they set remain. @returns their output. */
  const follow = (heading: string) => {
    const script = `set -a; . ./.variables; ${commandsOf(heading)}\nexport -p >.variables`
    return bash(script).catch((error: { stdout: string; stderr: string }) => {
      throw new Error(`${heading}: ${error.stdout}${error.stderr}`)
    })
  }
  const ask = async (code: string, key = '$KEY') => {
    const body = JSON.stringify({ language: 'bash', thread_id: 'notes', code })
    const call = `curl --silent http://127.0.0.1:5555/v1/sandbox/execute -H "x-api-key: ${key}" \
      -H 'content-type: application/json' -d '${body}'`
    return JSON.parse(await bash(`. ./.variables; ${call}`)) as { stdout?: string }
  }
  const isServing = () =>
    bash('curl --silent --fail http://127.0.0.1:5555/readyz').then(
      () => true,
      () => false,
    )

  let deb: string
  let previous: string | undefined
  beforeAll(async () => {
    deb = await builtPackage('deb')
    previous = await previousPackage()
    const volumes = ['--volume', `${dirname(deb)}:/deb:ro`, '--volume', '/var/lib/glovebox', '--volume', '/backups']
    if (previous !== undefined) volumes.push('--volume', `${dirname(previous)}:/previous:ro`)
    // Only loopback, where every port is free.
    const flags = ['--privileged', '--systemd=always', '--net=none', '--name', name, ...limitFlags(), ...volumes]
    await podman('run', '--detach', ...flags, image!, '/lib/systemd/systemd')
    await until(
      () =>
        inside('systemctl', 'is-system-running').then(
          () => true,
          () => false,
        ),
      'Debian has booted',
    )
    // Another range of user ids than that of servers beside it, and limits that a container can have.
    const settings = `id_base: ${0x7800_0000}\\nslots_ready: 1\\ndrain_s: 1\\n`
    await bash(`mkdir -p /etc/glovebox /etc/systemd/system/glovebox.service.d
      printf '${settings}' >/etc/glovebox/glovebox.yaml
      printf '[Service]\\nLimitNOFILE=16384\\n' >/etc/systemd/system/glovebox.service.d/limits.conf
      printf 'Dpkg::Options { "--force-confold"; };\\n' >/etc/apt/apt.conf.d/keep
      echo '127.0.0.1 code.example' >>/etc/hosts
      touch .variables
      cp /deb/${basename(deb)} .`)
  }, rootWithinMs + buildWithinMs)
  afterAll(async () => {
    await podman('rm', '--force', '--volumes', '--time', '20', name)
  }, 60_000)

  it('has no commands that this test does not know', () => {
    const headings = page.split(/^## /m).filter((text) => text.includes('```sh'))
    expect(headings.map((text) => text.split('\n')[0])).toEqual([
      ...['Install', 'Organizations from a file', 'Behind a reverse proxy', 'Monitoring', 'Backups', 'Upgrades'],
      ...['Restore', 'As a service of systemd', 'TLS without a proxy'],
    ])
  })

  it('starts from a server of the previous commit', async ({ skip }) => {
    if (previous === undefined) return skip()
    await bash(`dpkg --force-confold -i /previous/${basename(previous)}`)
    await until(isServing, 'the previous version serves')
    await bash('glovebox keys create --org early >early')
    expect(await ask('echo early >>notes; cat notes', '$(cat early)')).toMatchObject({ stdout: 'early\n' })
  })

  it('installs the package, whose service serves', async () => {
    expect(await follow('Install')).toContain('Status: "Serving')
    expect(await bash('curl --silent http://127.0.0.1:5555/readyz')).toContain('ready')
  })

  it('declares two organizations, whose keys are in a file of root', async () => {
    expect(await follow('Organizations from a file')).toContain('+ organization beta')
    expect(await bash('stat --format=%a new-keys.yaml')).toBe('600\n')
  })

  it('puts Caddy before it, through which a key runs code', async () => {
    // On the machine of an operator, the client trusts the certificate.
    await bash(`echo 'declare -x CURL_CA_BUNDLE=${trusted}' >>.variables
      echo 'retry-all-errors\nretry = 30\nretry-delay = 1' >.curlrc`)
    expect(JSON.parse(await follow('Behind a reverse proxy'))).toMatchObject({ stdout: 'first\n' })
    await bash('rm .curlrc')
  })

  it('lets Prometheus scrape it', async () => {
    await follow('Monitoring')
    const query = `curl --silent 'http://127.0.0.1:9090/api/v1/query?query=up'`
    const isUp = async () => (await bash(query).catch(() => '')).includes('"job":"glovebox"},"value":[') && isScraped()
    const isScraped = async () => /,"1"\]/.test(await bash(query))
    await until(isUp, 'the server is scraped')
  })

  it('makes a backup, and upgrades with everything still there', async () => {
    expect(await follow('Backups')).toMatch(/^Backed up the database, \d threads? and 1 volume/m)
    expect(await follow('Upgrades')).toContain('active')
    await until(isServing, 'the new version serves')
    expect(await ask('echo after the backup >>notes; cat notes')).toMatchObject({ stdout: 'first\nafter the backup\n' })
  })

  it('restores it into another home, with everything that the backup contained', async () => {
    await follow('Restore')
    await until(isServing, 'the restored server serves')
    expect(await ask('cat notes /volumes/data/file')).toMatchObject({ stdout: 'first\nshared\n' })
    if (previous !== undefined) expect(await ask('cat notes', '$(cat early)')).toMatchObject({ stdout: 'early\n' })
    expect(await bash('glovebox orgs list')).toContain('beta')
    expect(await bash('glovebox audit verify')).toMatch(/^\d+:/)
  })

  it('keeps the unit that it has when it is installed as a service again', async () => {
    const unit = await bash('cat /etc/systemd/system/glovebox.service')
    expect(await follow('As a service of systemd')).toContain('Status: "Serving')
    expect(await bash('cat /etc/systemd/system/glovebox.service')).toBe(unit)
  })

  it('serves with TLS and no proxy, with a certificate that its clients trust', async () => {
    const caddys = '/var/lib/caddy/.local/share/caddy/certificates/local/code.example/code.example'
    await bash(`systemctl stop glovebox caddy
      install --owner=61000 --mode=400 ${caddys}.crt /etc/glovebox/fullchain.pem
      install --owner=61000 --mode=400 ${caddys}.key /etc/glovebox/privkey.pem`)
    const program = Buffer.from(commandsOf('TLS without a proxy')).toString('base64')
    await bash(`echo ${program} | base64 --decode >tls.sh
      systemd-run --quiet --unit=glovebox-tls --property=Delegate=yes --working-directory=/root bash tls.sh`)
    const ready = `. ./.variables; curl --silent --fail https://code.example:5555/readyz`
    const isReady = () =>
      bash(ready).then(
        (answer) => answer.includes('ready'),
        () => false,
      )
    await until(isReady, 'the server serves with TLS')
    const status = await bash(`. ./.variables
      export NODE_EXTRA_CA_CERTS=${trusted} GLOVEBOX_URL=https://code.example:5555 GLOVEBOX_KEY=$KEY
      glovebox status`)
    expect(status).toContain('https://code.example:5555')
    expect(status).toContain('key accepted')
    await bash('systemctl stop glovebox-tls')
  })
})
