import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'

/** Mode, size in bytes, mtime in ms, inode, device, links, uid, gid, 512-byte blocks. */
export type StatNumbers = readonly number[]

export interface PeerCredentials {
  pid: number
  uid: number
  gid: number
}

/**
 * The operations of the addon in `addon/`: thin wrappers of system calls that Node does not provide. Those that return a
 * promise run on threads of the libuv pool and reject with an Error with `code` and `syscall`, as in Node's fs. Names and
 * paths are bytes without NUL; a name is one path component. The caller must keep descriptors open until the promise
 * settles.
 */
interface Kernel {
  /** Calls openat2(2) beneath a directory. Does not follow links, cross mounts, or wait for a peer or a lease. */
  openBeneath(directory: number, path: Buffer, flags: number, mode: number): Promise<number>
  /** Does not follow links. */
  statName(directory: number, name: Buffer): Promise<StatNumbers>
  statDescriptor(descriptor: number): Promise<StatNumbers>
  /**
   * Creates a directory with its mode and owner atomically; until then it has the name `unfinished` in the root.
   * Rejects with EEXIST and the syscall `unfinished` if that name is in use.
   */
  makeDirectory(
    root: number,
    unfinished: Buffer,
    directory: number,
    name: Buffer,
    mode: number,
    uid: number,
    gid: number,
  ): Promise<void>
  removeName(directory: number, name: Buffer, isDirectory: number): Promise<void>
  /** Removes files, links and empty directories with these names, separated by "/". Keeps other directories. */
  removeLeftovers(directory: number, names: Buffer): Promise<void>
  renameName(fromDirectory: number, from: Buffer, toDirectory: number, to: Buffer, mayReplace: number): Promise<void>
  /** Names a file that was opened with O_TMPFILE, and replaces an existing entry; `unfinished` as for `makeDirectory`. */
  publishFile(file: number, root: number, unfinished: Buffer, directory: number, name: Buffer): Promise<void>
  /** @param cookie decimal `d_off` of the last entry seen, or "0". @returns entries as getdents64(2) packs them. */
  readDirectory(directory: number, cookie: Buffer, roomBytes: number): Promise<Buffer>
  /**
   * Finds regular files below a directory whose status changed at or after a wall-clock time, within a time limit.
   * @returns one byte that states whether the result is incomplete, then a record for each file: length of its path u16,
   * size u64, change time in nanoseconds u64, inode u64, path.
   */
  changedFiles(root: number, sinceUs: number, forMs: number): Promise<Buffer>
  syncDescriptor(descriptor: number): Promise<void>
  syncFilesystem(descriptor: number): Promise<void>
  /** Returns block size; total, free and available blocks; total and free inodes. */
  statFilesystem(descriptor: number): Promise<readonly number[]>

  /** Rejects with EAGAIN while another open file description, or a loop device configured with one, holds the lock. */
  lockDisk(disk: number): Promise<void>
  /** @returns the number of bytes copied; 0 if the blocks are shared. */
  copySparse(from: number, to: number): Promise<number>
  punchHole(disk: number, offset: number, bytes: number): Promise<void>

  /** @returns the number of a loop device that is free now. Rejects if no filesystem could be mounted. */
  findLoopDevice(): Promise<number>
  /** @returns the number of the loop device, which keeps the disk open and locked. */
  mountDisk(disk: number, target: Buffer): Promise<number>
  unmount(target: Buffer, lazily: number): Promise<void>
  makeDock(directory: Buffer): Promise<void>
  /** Mounts a read-only filesystem with empty directories at `target`. Their names are separated by "/". */
  mountDirectories(target: Buffer, names: Buffer): Promise<void>
  /**
   * Mounts the filesystem of `root` at `target` with IDs mapped to a user namespace; nosuid, nodev. Restores the root
   * directory first: owner 1000, no ACLs, and mode 755 unless the owner can read, write and search it.
   */
  mountIdmapped(root: number, userNamespace: number, readOnly: number, target: Buffer): Promise<void>
  /** As `mountIdmapped`, but leaves the root directory as it is: that of an image has an owner and a mode of its own. */
  mountImage(root: number, userNamespace: number, readOnly: number, target: Buffer): Promise<void>
  /** @returns a descriptor of such a mount without a mount point. Closing it unmounts it. */
  openIdmapped(root: number, userNamespace: number, readOnly: number): Promise<number>
  /**
   * @returns a descriptor of a user namespace for `mountImage`, which maps one user and group of a filesystem to those that
   * processes see, as IDs of this process. Files of others have no owner.
   */
  openOwnerNamespace(uid: number, gid: number, shownUid: number, shownGid: number): Promise<number>
  /**
   * Mounts an overlay of a directory: nosuid, nodev. What is changed is kept in `upper`, on the filesystem of `work`.
   * @param uid user of this machine who has an ID in the mount of `upper`.
   */
  mountReview(lower: Buffer, upper: Buffer, work: Buffer, target: Buffer, uid: number, gid: number): Promise<void>
  /** @returns 1 if a directory of an upper layer hides the content of the same directory in the lower one. */
  isOpaque(directory: number): Promise<number>
  /** @returns the number of bytes that became holes in the disk. */
  trimFilesystem(root: number): Promise<number>

  /** Makes every mount of this namespace a slave: it propagates nowhere and is unmounted with that of the machine. */
  makeMountsSlaves(): Promise<void>
  /** Binds a file or directory without the mounts below it: read-only, nosuid, nodev. */
  bindReadOnly(source: Buffer, target: Buffer): Promise<void>
  /**
   * Mounts an overlay of /dev, not nodev, over an empty directory. Locks on its nodes are not shared with those of /dev.
   * Rejects with ENXIO when its nodes cannot be used.
   */
  mountDevices(target: Buffer): Promise<void>
  /** Mounts an empty directory of at most 1 MiB. */
  mountTmpfs(target: Buffer): Promise<void>
  /** Mounts a procfs of the PID namespace of this process. */
  mountProc(target: Buffer): Promise<void>

  /**
   * Opens sockets in the network namespace of a jail, whose every address leads to itself from then on. Rejects with EINVAL
   * for the namespace of this process.
   * @param namespace descriptor of the network namespace.
   * @returns descriptors that the caller closes: a listener on 127.0.0.1 and one on ::1 (-1 without IPv6), a UDP socket on
   * port 53 of 127.0.0.1, and the link that leads connections to all other addresses to the two listeners.
   */
  openJailNetwork(namespace: number, port: number): Promise<readonly number[]>
  /** Connects to 127.0.0.1 or ::1 in the network namespace of a jail. Rejects with ETIMEDOUT after 250 ms. @returns the socket. */
  connectInJail(namespace: number, port: number): Promise<number>

  /** Sends one datagram to a UNIX socket; a path that begins with `@` is an abstract address. */
  sendDatagram(path: Buffer, message: Buffer): Promise<void>

  /** @returns the peer of a connected UNIX socket from the kernel (SO_PEERCRED); `undefined` for other descriptors. */
  peerCredentials(fd: number): PeerCredentials | undefined
}

const addonPath = fileURLToPath(new URL('../../build/kernel.node', import.meta.url))

export const kernel = createRequire(import.meta.url)(addonPath) as Kernel

/** Returns the `code` of a system error, such as `ENOENT`; `undefined` for other errors. */
export function codeOf(error: unknown): string | undefined {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined
  return typeof code === 'string' ? code : undefined
}
