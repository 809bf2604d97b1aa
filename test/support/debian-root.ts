import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)
const cache = join(import.meta.dirname, '../../build/foreign')

/** A Debian that can boot, with what the package and docs/operate.md install, so that installing downloads nothing. */
const packages = [
  ...['systemd', 'systemd-sysv', 'dbus', 'runc', 'python3', 'e2fsprogs', 'mount', 'util-linux', 'ca-certificates'],
  ...['git', 'ripgrep', 'libstdc++6', 'libgcc-s1', 'init-system-helpers', 'caddy', 'prometheus', 'curl'],
]
const tag = 'localhost/glovebox-test-debian:bookworm-2'

/** How long making the root may take on a busy machine, in ms. */
export const rootWithinMs = 500_000

/**
 * Makes an image of a fresh Debian from its packages, unless it exists.
 * @returns its name, or `undefined` where it cannot be made.
 */
export async function debianImage(): Promise<string | undefined> {
  try {
    await execute('mmdebstrap', ['--version'])
    // Several tests need it at the same time; one of them makes it.
    await mkdir(cache, { recursive: true })
    const make = `podman image exists ${tag} || {
      mmdebstrap --quiet --mode=root --variant=minbase --include=${packages.join(',')} bookworm - | podman import --quiet - ${tag}
    }`
    await execute('flock', [join(cache, 'debian.lock'), 'bash', '-o', 'pipefail', '-c', make])
    return tag
  } catch {
    return undefined
  }
}

/** Podman, with runc: crun of Debian 12 does not start where cgroup v1 and v2 are both mounted. */
export async function podman(...words: string[]): Promise<string> {
  const { stdout } = await execute('podman', ['--runtime', 'runc', ...words], { maxBuffer: 64 * 1024 ** 2 })
  return stdout
}

/** Flags for a machine whose root cannot raise limits, where the defaults of Podman are refused. */
export function limitFlags(): string[] {
  const limits = readFileSync('/proc/self/limits', 'latin1')
  const hard = (name: string, most: number) => {
    const value = new RegExp(`^${name}\\s+\\S+\\s+(\\S+)`, 'm').exec(limits)?.[1]
    return value === undefined || value === 'unlimited' ? most : Math.min(Number(value), most)
  }
  const files = hard('Max open files', 1_048_576)
  const processes = hard('Max processes', 32_768)
  return ['--ulimit', `nofile=${files}:${files}`, '--ulimit', `nproc=${processes}:${processes}`]
}
