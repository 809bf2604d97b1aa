/** Installs the packages of a profile in a sandbox. */
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import { defaultImage } from '../../base/image.ts'
import {
  nodePackagesDir,
  type ProfilePackages,
  packagesDir,
  packagesSlug,
  pythonPackagesDir,
} from '../../base/packages.ts'
import { Redactor } from '../../base/redaction/redactor.ts'
import type { RunVolume } from '../../base/run.ts'
import { homeDirectory, type SandboxSpec } from '../../base/sandbox.ts'
import type { Caller } from '../caller.ts'
import { type ProgramProcesses, problemOf, runInstallation } from '../upstreams/programs/program-process.ts'
import { RecentText } from '../upstreams/programs/recent-text.ts'
import { debianCommand } from './debian.ts'

const mib = 1024 * 1024
/** Programs that build packages start more processes and open more files than most runs. */
const [pidsMax, openFilesMax] = [512, 4096]
const memoryMinBytes = 512 * mib
const tmpBytes = 64 * mib
export const filesMax = 400_000
/** Longest part of the output in a message, in characters. */
const excerptMax = 800

const temporary = `${homeDirectory}/.packages-tmp`

/** Variables of a profile that say how package managers install, such as the address of an index. */
export const managerEnv = (env: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(env).filter(([name]) => /^(?:PIP_|npm_config_)/i.test(name)))

/** Returns the sandbox that installs packages on a volume. @param network of the installation. */
export function toInstallationSpec(
  { orgId, keyId, profile: { limits, env } }: Caller,
  image: string,
  network: SandboxSpec['network'],
  { slug, name, quota }: RunVolume,
): SandboxSpec {
  return {
    ...{ sandboxId: name, orgId, keyId },
    ...(image !== defaultImage && { image }),
    env: { ...managerEnv(env), TMPDIR: temporary, HOME: homeDirectory },
    ...{ workdir: homeDirectory, user: 'baponi' },
    limits: {
      ...{ memoryBytes: Math.max(limits.memoryBytes, memoryMinBytes), cpus: limits.cpus, tmpBytes },
      ...{ pids: pidsMax, openFiles: openFilesMax, fileBytes: quota.bytes },
    },
    disk: quota,
    volumes: [{ slug, name, quota, readOnly: false }],
    ...(network && { network }),
  }
}

/** Returns the volume of a layer as runs have it. @param id of the layer. */
export const toVolume = (id: string, quotaBytes: number): RunVolume => ({
  ...{ slug: packagesSlug, name: id, readOnly: true },
  quota: { bytes: quotaBytes, inodes: filesMax },
})

/** Links the commands of all packages in one directory, and waits until everything is on the disk. */
const finish = `set -eu
cd ${packagesDir}
mkdir -p bin
for directory in python/site-packages/bin node/node_modules/.bin; do
  for file in "$directory"/*; do
    if [ -e "$file" ]; then ln -sfn "../$file" "bin/\${file##*/}"; fi
  done
done
sync -f . || sync`

type Lists = Pick<ProfilePackages, 'pip' | 'npm' | 'apt'>

/** Returns the commands that install packages, in order. */
export function commandsOf({ pip, npm, apt }: Lists): string[][] {
  const pipOptions = ['--no-input', '--no-cache-dir', '--progress-bar', 'off', '--no-warn-script-location']
  const npmOptions = ['--no-save', '--no-audit', '--no-fund', '--no-progress', '--loglevel=error']
  return [
    ['mkdir', '-p', temporary, nodePackagesDir],
    // First, so that commands of pip and npm replace those with the same name.
    ...(apt.length > 0 ? [debianCommand(apt)] : []),
    ...(pip.length > 0
      ? [['python3', '-m', 'pip', 'install', ...pipOptions, '--target', pythonPackagesDir, '--', ...pip]]
      : []),
    ...(npm.length > 0 ? [['npm', 'install', `--prefix=${nodePackagesDir}`, ...npmOptions, '--', ...npm]] : []),
    ['sh', '-c', finish],
  ]
}

/**
 * Executes the commands in a sandbox.
 * @param withinMs time for all of them.
 * @returns what failed, with the end of its output; `undefined` for nothing.
 * @throws Refusal unavailable.
 */
export async function install(
  processes: ProgramProcesses,
  sandboxId: string,
  packages: Lists,
  withinMs: number,
): Promise<string | undefined> {
  const untilMs = monotonicMs() + withinMs
  for (const argv of commandsOf(packages)) {
    const said = new RecentText(16 * 1024)
    const timeoutMs = Math.ceil(Math.max(1_000, untilMs - monotonicMs()))
    const ending = await runInstallation(processes, sandboxId, argv, said, timeoutMs)
    if (ending === undefined || ending.kind === 'sandbox_ended') {
      throw new Refusal('unavailable', { reason: 'the installation was stopped' })
    }
    if (ending.kind === 'exited' && ending.code === 0) continue
    const name = argv.slice(2, 4).find((word) => word === 'pip' || word === 'apt') ?? argv[0]
    const problem = ending.kind === 'timed_out' ? `did not end within ${withinMs / 1000} seconds` : problemOf(ending)
    const output = new Redactor().redact(said.toString()).text.trim().replaceAll(/\s+/g, ' ').slice(-excerptMax)
    return `${name} ${problem}${output === '' ? '' : `; it wrote: ${output.replace(/\.$/, '')}`}`
  }
  return undefined
}
