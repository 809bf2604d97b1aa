import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { mkdtemp, rm, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { StartRefused } from '../base/errors.ts'
import { codeOf } from '../kernel/kernel.ts'
import { Dock } from './dock.ts'
import { makeDirectory, statPath } from './files.ts'
import { Filesystems, type Mounted } from './filesystems.ts'

const remedies: Readonly<Record<string, string>> = {
  'spawn mkfs.ext4': 'Install the package e2fsprogs.',
  loop: "Load the kernel module loop. In a container, add --volume=/dev:/dev --device-cgroup-rule='b 7:* rmw' --device-cgroup-rule='c 10:237 rmw' to its flags.",
  fsopen: 'Use a kernel with ext4 (Linux 5.12 or later).',
  mount: 'Start as root with the capability to mount (CAP_SYS_ADMIN), on Linux 5.12 or later with ext4.',
  mount_setattr: 'Use a kernel with idmapped mounts of ext4: Linux 5.12 or later.',
  fallocate: 'Keep storage on a local filesystem with sparse files (ext4, xfs, btrfs).',
  FITRIM: 'Keep storage on a local filesystem with sparse files (ext4, xfs, btrfs).',
  flock: 'Keep storage on a local filesystem.',
  openat2: 'Use Linux 5.6 or later, and a seccomp policy that allows openat2.',
}

/**
 * Creates a filesystem, mounts it, attaches it to another user namespace and opens a file in it. Runs at every start, so
 * that a missing capability of the machine prevents the start instead of a run.
 * @param dir on the disk of the storage, accessible only to this process; it is empty afterwards.
 * @throws StartRefused with the step that failed and the remedy.
 */
export async function probeStorage(dir: string): Promise<void> {
  const scratch = await mkdtemp(join(dir, 'probe-'))
  try {
    const settings = {
      home: join(scratch, 'home'),
      mountsDir: join(scratch, 'mounts'),
      reserveBytes: 0,
      lockPatienceMs: 5_000,
    }
    const filesystems = await Filesystems.open(settings)
    const id = { area: 'threads', org: 'probe', name: 'probe' } as const
    await filesystems.create(id, { bytes: 1024 * 1024, inodes: 64 })
    const mounted = await filesystems.mount(id)
    try {
      await makeDirectory(mounted.root.fd, 'some/where')
      await statPath(mounted.root.fd, 'some/where')
      await probeHandover(mounted, join(scratch, 'dock'))
    } finally {
      await filesystems.unmount(mounted)
    }
    await rmdir(settings.mountsDir)
  } catch (error) {
    throw refused(error)
  } finally {
    await rm(scratch, { recursive: true, force: true, maxRetries: 3 })
  }
}

function refused(error: unknown): unknown {
  const step = error instanceof Error ? String(Reflect.get(error, 'syscall') ?? '') : ''
  if (codeOf(error) === undefined) return error
  const remedy = remedies[step] ?? 'See which step failed, and give the runner what it needs for it.'
  const refusal = new StartRefused(`Storage cannot be set up here: ${(error as Error).message}.`, remedy)
  refusal.cause = error
  return refusal
}

async function probeHandover(mounted: Mounted, dockDir: string): Promise<void> {
  const dock = await Dock.open(dockDir)
  const child = spawn('unshare', ['--user', '--', 'cat'], { stdio: ['pipe', 'pipe', 'ignore'], env: {} })
  try {
    await once(child, 'spawn')
    child.stdin.write('.')
    await once(child.stdout, 'data') // The child is in its user namespace.
    for (const map of ['uid_map', 'gid_map']) writeFileSync(`/proc/${child.pid}/${map}`, '0 1000000 65536\n')
    const attachment = await dock.attach(mounted, { initPid: child.pid ?? 0, name: 'probe', readOnly: false })
    await attachment.detach()
  } finally {
    child.kill('SIGKILL')
    await dock.release()
  }
}
