import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { buildWithinMs, builtPackage } from '../support/built-packages.ts'
import { execute } from '../support/calls.ts'
import { debianImage, limitFlags, podman, rootWithinMs } from '../support/debian-root.ts'
import { freePort, until } from '../support/glovebox.ts'

const run = promisify(execFile)
const root = join(import.meta.dirname, '../..')
const hasLintian = await run('lintian', ['--version']).then(
  () => true,
  () => false,
)
const image = await debianImage()

let deb: string
beforeAll(async () => {
  deb = await builtPackage('deb')
}, buildWithinMs)

const isReady = (url: string) => async (): Promise<boolean> =>
  fetch(`${url}/readyz`).then(
    ({ ok }) => ok,
    () => false,
  )

describe('the Debian package', () => {
  it.skipIf(!hasLintian)(
    'passes lintian',
    async () => {
      const said = await run('lintian', ['--fail-on', 'error,warning', deb]).catch((error: object) => error)
      expect((said as { stdout: string }).stdout.split('\n').filter((line) => /^[EW]: /.test(line))).toEqual([])
    },
    400_000,
  )

  it('contains a manual page of all commands, and completions', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'glovebox-deb-'))
    try {
      await run('dpkg-deb', ['-x', deb, directory])
      const page = join(directory, 'usr/share/man/man1/glovebox.1.gz')
      const { stdout } = await run('sh', ['-c', `zcat ${page}`], { maxBuffer: 8 * 1024 ** 2 })
      for (const word of ['glovebox serve', 'glovebox install\\-service', '\\-\\-thread', '.SH EXIT STATUS'])
        expect(stdout).toContain(word)
      const completion = join(directory, 'usr/share/bash-completion/completions/glovebox')
      await run('bash', ['-n', completion])
    } finally {
      rmSync(directory, { recursive: true })
    }
  })
})

/** The privileges in the command of docs/install.md that starts a container, one flag for each. */
function documentedFlags(): string[] {
  const page = readFileSync(join(root, 'docs/install.md'), 'utf8')
  const command = /^podman run (?:.*\\\n)*.*$/m.exec(page)?.[0] ?? ''
  const flags = command.match(/--(?:cap-add|volume|device-cgroup-rule)=(?:'[^']*'|\S+)/g) ?? []
  return flags
    .map((flag) => flag.replaceAll("'", ''))
    .flatMap((flag) => {
      const capabilities = /^--cap-add=(.*)$/.exec(flag)?.[1]?.split(',')
      return capabilities ? capabilities.map((name) => `--cap-add=${name}`) : [flag]
    })
}

const rootIsMissing = image === undefined
/** The end of titles of tests that are skipped because no packages can be downloaded; .ci/report.ts counts them apart. */
const reason = rootIsMissing ? ' (no package registry)' : ''
const tag = `localhost/glovebox-test-image:${process.pid}`
describe.skipIf(rootIsMissing)(`the container image${reason}`, () => {
  const context = mkdtempSync(join(tmpdir(), 'glovebox-image-'))
  const name = `glovebox-test-image-${process.pid}`
  const documented = documentedFlags()
  const isOfDevices = (flag: string) => flag === '--volume=/dev:/dev' || flag.startsWith('--device-cgroup-rule')
  /** By the flag that is named when they are missing. Those of loop devices go together. */
  const privileges: Record<string, string[]> = {
    ...Object.fromEntries(documented.filter((flag) => !isOfDevices(flag)).map((flag) => [flag, [flag]])),
    "--device-cgroup-rule='b 7:* rmw'": documented.filter(isOfDevices),
  }
  const start = (flags: readonly string[], port: number, more: readonly string[] = []) => {
    const settings = [
      '--port',
      `${port}`,
      '--id-base',
      `${0x7900_0000}`,
      '--slots-ready',
      '1',
      '--drain-s',
      '1',
      ...more,
    ]
    const own = ['--rm', '--name', name, '--net=host', ...limitFlags(), ...flags]
    return podman('run', ...own, tag, 'serve', '--dev', ...settings)
  }
  /** Calls a server in a container, and stops it. */
  const serving = async <T>(flags: readonly string[], more: readonly string[], act: (url: string) => Promise<T>) => {
    const port = await freePort()
    const url = `http://127.0.0.1:${port}`
    const ended = start(flags, port, more)
    ended.catch(() => undefined)
    await Promise.race([until(isReady(url), 'the container is ready'), ended])
    const result = await act(url)
    await podman('stop', '--time', '20', name)
    await ended
    return result
  }

  beforeAll(async () => {
    mkdirSync(join(context, 'build'))
    await run('cp', [deb, join(context, 'build')])
    const flags = ['--file', join(root, 'deploy/Containerfile'), '--build-arg', `BASE=${image}`, '--tag', tag]
    await podman('build', '--quiet', '--net=host', ...limitFlags(), ...flags, context)
  }, rootWithinMs)
  afterAll(async () => {
    await podman('rmi', '--force', tag).catch(() => undefined)
    rmSync(context, { recursive: true })
  }, 60_000)

  it('needs the same privileges with Docker Compose, and its filters switched off', () => {
    const { glovebox } = parse(readFileSync(join(root, 'deploy/compose.yaml'), 'utf8')).services
    expect([
      ...glovebox.cap_add.map((name: string) => `--cap-add=${name}`),
      ...glovebox.volumes.slice(1).map((volume: string) => `--volume=${volume}`),
      ...glovebox.device_cgroup_rules.map((rule: string) => `--device-cgroup-rule=${rule}`),
    ]).toEqual(expect.arrayContaining(documented))
    expect(glovebox.security_opt).toEqual(['apparmor=unconfined', 'seccomp=unconfined'])
  })

  it('serves with the privileges of docs/install.md', async () => {
    expect(Object.keys(privileges)).toHaveLength(5)
    const result = await serving(Object.values(privileges).flat(), [], (url) =>
      execute(url, 'python', 'print(6 * 7)', { thread_id: 'one' }),
    )
    expect(result.stdout).toBe('42\n')
  }, 120_000)

  it('serves with the security context of the manifest for Kubernetes, without threads', async () => {
    const documents = parseAllDocuments(readFileSync(join(root, 'deploy/kubernetes.yaml'), 'utf8'))
    const [container] = documents.map((one) => one.toJS()).find(({ kind }) => kind === 'StatefulSet').spec.template
      .spec.containers
    expect(container.securityContext).toMatchObject({ privileged: false, seccompProfile: { type: 'Unconfined' } })
    const { drop, add } = container.securityContext.capabilities as { drop: string[]; add: string[] }
    const flags = [`--cap-drop=${drop.join()}`, `--cap-add=${add.join()}`, '--security-opt=seccomp=unconfined']
    const withCgroups = [...flags, '--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw']
    const result = await serving(withCgroups, ['--storage', 'none'], (url) => execute(url, 'python', 'print(6 * 7)'))
    expect(result.stdout).toBe('42\n')
  }, 120_000)

  it.each(Object.keys(privileges))(
    'names the flag %s when it is missing',
    async (missing) => {
      const flags = Object.entries(privileges).flatMap(([flag, words]) => (flag === missing ? [] : words))
      const said = await start(flags, await freePort()).catch((error: object) => error)
      expect(said).toMatchObject({ code: 78, stderr: expect.stringContaining(missing) })
    },
    120_000,
  )
})
