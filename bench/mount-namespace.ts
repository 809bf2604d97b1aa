import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'

const marker = '--in-own-mount-namespace'

/**
 * Runs `work` in a private mount namespace, where crun works on every machine: before 1.9 it refuses when cgroup v1
 * and v2 are both mounted, so an empty directory replaces the v2 tree there, provided that no required controller
 * is part of it. The mounts of the machine are not changed.
 * @param words the arguments after the program name.
 * @returns the exit code.
 */
export async function inOwnMountNamespace(
  entry: string,
  words: readonly string[],
  work: (words: readonly string[]) => Promise<void>,
): Promise<number> {
  if (words[0] !== marker) {
    const again = ['--mount', '--propagation', 'private', '--', process.execPath, entry, marker, ...words]
    return spawnSync('unshare', again, { stdio: 'inherit' }).status ?? 1
  }
  hideEmptyUnifiedCgroup()
  await work(words.slice(1))
  return 0
}

function hideEmptyUnifiedCgroup(): void {
  const unified = '/sys/fs/cgroup/unified'
  const controllers = `${unified}/cgroup.controllers`
  if (!existsSync(controllers)) return
  const here = readFileSync(controllers, 'utf8').trim().split(' ')
  if (here.some((name) => ['memory', 'pids', 'cpu'].includes(name))) return
  execFileSync('umount', [unified])
  // crun writes there as if it were a cgroup; this is removed with the namespace.
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=700', 'tmpfs', unified])
}
