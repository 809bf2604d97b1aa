import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { StartRefused } from '../base/errors.ts'
import { programRoot } from './unprivileged-command.ts'

/**
 * The capabilities of the runner: creating namespaces and mounts, changing ids, ending processes of other users, writing
 * cgroup files, setting limits and priorities, answering on the port of name servers in jails. None for devices, kernel modules, raw sockets or the clock.
 */
export const runnerCapabilities = [
  'chown',
  'dac_override',
  'fowner',
  'kill',
  'net_admin',
  'net_bind_service',
  'setgid',
  'setpcap',
  'setuid',
  'sys_admin',
  'sys_chroot',
  'sys_nice',
  'sys_ptrace',
  'sys_resource',
] as const

type Capability = (typeof runnerCapabilities)[number]

/** Their numbers: https://github.com/torvalds/linux/blob/master/include/uapi/linux/capability.h */
const numbers: Readonly<Record<Capability, number>> = {
  chown: 0,
  dac_override: 1,
  fowner: 3,
  kill: 5,
  setgid: 6,
  setuid: 7,
  setpcap: 8,
  net_bind_service: 10,
  net_admin: 12,
  sys_chroot: 18,
  sys_ptrace: 19,
  sys_admin: 21,
  sys_nice: 23,
  sys_resource: 24,
}

/**
 * Everything works without these. `sys_resource` raises the limits of the machine on open files and processes; `sys_nice` gives
 * the thread that watches socket buffers its priority.
 */
const optional: ReadonlySet<Capability> = new Set(['sys_nice', 'sys_resource'])

/**
 * Requires the privilege to create namespaces and mounts, which all isolation is built on.
 * @param command as the operator typed it.
 * @throws StartRefused when this process lacks it, with what is missing.
 */
export function requirePrivilege(command: string): void {
  requirePlatform()
  if (process.getuid?.() !== 0) {
    throw new StartRefused(`glovebox ${command} must be started by root.`, 'Start it with sudo or as a system service.')
  }
  const missing = missingCapabilities(readFileSync('/proc/self/status', 'latin1'))
  if (missing.length === 0) {
    requireMountNamespace()
    return
  }
  const names = missing.map((name) => name.toUpperCase())
  throw new StartRefused(
    `This process cannot create sandboxes: it lacks ${names.map((name) => `CAP_${name}`).join(', ')}.`,
    `Start it outside a container, or add to the flags of the container: --cap-add=${names.join(',')} (docs/install.md lists all flags).`,
  )
}

/**
 * A filter on system calls can forbid what the capabilities permit.
 * @throws StartRefused when unshare(1) is missing, or may not do what starts the runner.
 */
function requireMountNamespace(): void {
  const { error, status, stderr } = spawnSync('unshare', [...ownMounts, 'true'], { encoding: 'utf8', timeout: 10_000 })
  if (error) throw new StartRefused(`unshare cannot be started: ${error.message}.`, 'Install the package util-linux.')
  if (status === 0) return
  throw new StartRefused(
    `This process cannot create a mount namespace: ${stderr.trim()}.`,
    'Permit the system calls unshare and mount: in a container with the flags of docs/install.md.',
  )
}

/** Arguments of unshare(1) for a command in a mount namespace of its own, whose mounts follow those of the machine. */
export const ownMounts = ['--mount', '--propagation', 'slave', '--'] as const

/** Returns the required capabilities that a process does not hold. @param status text of /proc/PID/status. */
export function missingCapabilities(status: string): Capability[] {
  const held = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`)
  return runnerCapabilities.filter((name) => !optional.has(name) && (held >> BigInt(numbers[name])) % 2n === 0n)
}

/** @throws StartRefused where the kernel, or the package with its compiled programs, is for another platform. */
function requirePlatform(): void {
  const platform = `${process.platform}-${process.arch}`
  const built = builtFor() ?? platform
  if (process.platform === 'linux' && built === platform) return
  if (process.platform === 'linux')
    throw new StartRefused(
      `The programs of this package were built for ${built}, and this machine is ${platform}.`,
      `Install a package that was built on ${platform}: npm run package.`,
    )
  throw new StartRefused(
    `Servers run on Linux only, and this machine is ${platform}.`,
    'Start a server in a container: docs/install.md. The other commands can use any server.',
  )
}

/** The platform that a package was built for; `undefined` for the source tree. */
function builtFor(): string | undefined {
  try {
    return readFileSync(join(programRoot, 'build', 'platform'), 'utf8').trim()
  } catch {
    return undefined
  }
}
