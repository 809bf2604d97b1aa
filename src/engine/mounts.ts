import { readFileSync, readlinkSync } from 'node:fs'
import { StartRefused } from '../base/errors.ts'
import { kernel } from '../kernel/kernel.ts'

/**
 * What the runner mounts is for itself and its slots: it lives in a mount namespace of its own, so that nothing of it is
 * seen on the host and all of it ends with the runner.
 * @throws StartRefused when no process above this one, up to the machine's first, is in another mount namespace.
 */
export function requireOwnMountNamespace(): void {
  const ours = mountNamespace('self')
  for (let pid = process.ppid; pid > 0; pid = parentOf(pid)) {
    const theirs = mountNamespace(pid)
    if (theirs !== undefined && theirs !== ours) return
  }
  throw new StartRefused(
    'This process shares its mount namespace with the machine, where its mounts would be seen and stay behind.',
    'Start it through `glovebox serve`, or under `unshare --mount --propagation slave`.',
  )
}

/** @returns undefined where we may not look: a first process with more capabilities than ours. */
function mountNamespace(pid: number | 'self'): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/mnt`)
  } catch {
    return undefined
  }
}

const parentOf = (pid: number): number =>
  Number(/^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1] ?? 0)

/**
 * What is mounted or unmounted here from now on stays here, however this namespace was made. What the machine unmounts is
 * unmounted here as well.
 */
export async function makeMountsSlaves(): Promise<void> {
  requireOwnMountNamespace()
  await mounting('make the mounts slaves', kernel.makeMountsSlaves())
}

/**
 * Mounts a whole /proc in this mount namespace if parts of it are covered, as in a container. A slot can mount one of its
 * own only where a whole one is visible: https://man7.org/linux/man-pages/man7/mount_namespaces.7.html
 */
export async function uncoverProc(): Promise<void> {
  const proc = '/proc'
  const points = readFileSync(`${proc}/self/mountinfo`, 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
  // The kernel offers an empty directory for binfmt_misc, which covers nothing.
  const covers = points.filter((point) => point.startsWith(`${proc}/`) && point !== `${proc}/sys/fs/binfmt_misc`)
  if (covers.length > 0) await mounting('mount /proc', kernel.mountProc(Buffer.from(proc)))
}

/**
 * Binds a file or directory, without what is mounted below it: read-only, without devices or set-uid. A mount namespace
 * that belongs to a user namespace below ours cannot take these flags back.
 */
export async function bindReadOnly(source: string, target: string): Promise<void> {
  await mounting(`bind ${source} at ${target}`, kernel.bindReadOnly(Buffer.from(source), Buffer.from(target)))
}

/** An empty directory of our own over another, for a few small files. */
export async function mountEmpty(target: string): Promise<void> {
  await mounting(`mount a tmpfs at ${target}`, kernel.mountTmpfs(Buffer.from(target)))
}

/** Device nodes at an empty directory, with inodes of their own. */
export async function mountDevices(target: string): Promise<void> {
  await mounting(`mount an overlay of /dev at ${target}`, kernel.mountDevices(Buffer.from(target)))
}

/** Unmounts what others may still use; it ends with its last user. */
export async function unmountLazily(target: string): Promise<void> {
  await mounting(`unmount ${target}`, kernel.unmount(Buffer.from(target), 1))
}

export async function unmount(target: string): Promise<void> {
  await mounting(`unmount ${target}`, kernel.unmount(Buffer.from(target), 0))
}

/** Mount points at or below a directory in this mount namespace, the deepest first. */
export function mountsBelow(dir: string): string[] {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => unescapeOctal(line.split(' ')[4] ?? ''))
    .filter((point) => point === dir || point.startsWith(`${dir}/`))
    .reverse()
}

/** Space, tab, newline and backslash are written as octal there. */
const unescapeOctal = (path: string): string =>
  path.replaceAll(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))

async function mounting(step: string, done: Promise<void>): Promise<void> {
  try {
    await done
  } catch (error) {
    throw new StartRefused(
      `Could not ${step}: ${(error as Error).message}.`,
      'Start as root with the capability to mount (CAP_SYS_ADMIN).',
    )
  }
}
