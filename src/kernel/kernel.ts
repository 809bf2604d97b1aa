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
 * The operations of the addon in `addon/`: thin wrappers of the system calls that Node does not offer. Those that return a
 * promise run on threads of libuv's pool and reject with an Error that carries `code` and `syscall`, as Node's fs does.
 * Names and paths are bytes without NUL; a name is one path component. The caller keeps descriptors open until the promise
 * settles.
 */
interface Kernel {
  /** openat2(2) beneath a directory: no links, no other mounts, never waiting for a peer or a lease. */
  openBeneath(directory: number, path: Buffer, flags: number, mode: number): Promise<number>
  /** Of a link: the link itself. */
  statName(directory: number, name: Buffer): Promise<StatNumbers>
  statDescriptor(descriptor: number): Promise<StatNumbers>
  /**
   * The directory appears under its name with mode and owner, or not at all; until then it is `unfinished` in the root.
   * Rejects with EEXIST of the syscall `unfinished` when that name is taken.
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
  /** Removes files, links and empty directories of these names, which "/" separates; leaves other directories. */
  removeLeftovers(directory: number, names: Buffer): Promise<void>
  renameName(fromDirectory: number, from: Buffer, toDirectory: number, to: Buffer, mayReplace: number): Promise<void>
  /** Gives a file opened with O_TMPFILE its name, in place of what had it; `unfinished` as for `makeDirectory`. */
  publishFile(file: number, root: number, unfinished: Buffer, directory: number, name: Buffer): Promise<void>
  /** @param cookie decimal `d_off` of the last entry seen, or "0". @returns entries as getdents64(2) packs them. */
  readDirectory(directory: number, cookie: Buffer, roomBytes: number): Promise<Buffer>
  /**
   * Regular files below a directory whose status changed at or after a time of the wall clock. Looks for so long.
   * @returns one byte, whether something was left out, then a record for each: bytes of its path u16, size u64, change
   * time in nanoseconds u64, inode u64, path.
   */
  changedFiles(root: number, sinceUs: number, forMs: number): Promise<Buffer>
  syncDescriptor(descriptor: number): Promise<void>
  syncFilesystem(descriptor: number): Promise<void>
  /** Block size; blocks, free, free to users; inodes, free. */
  statFilesystem(descriptor: number): Promise<readonly number[]>

  /** Rejects with EAGAIN while another open file description, or a loop device configured with one, holds the lock. */
  lockDisk(disk: number): Promise<void>
  /** @returns bytes copied; 0 where the blocks are shared. */
  copySparse(from: number, to: number): Promise<number>
  punchHole(disk: number, offset: number, bytes: number): Promise<void>

  /** @returns the number of the loop device, which keeps the disk open and locked. */
  mountDisk(disk: number, target: Buffer): Promise<number>
  unmount(target: Buffer, lazily: number): Promise<void>
  makeDock(directory: Buffer): Promise<void>
  /** Mounts at `target` a read-only filesystem of empty directories, whose names "/" separates. */
  mountDirectories(target: Buffer, names: Buffer): Promise<void>
  /** Mounts the filesystem of `root` again at `target`, its ids mapped by a user namespace; nosuid, nodev. */
  mountIdmapped(root: number, userNamespace: number, readOnly: number, target: Buffer): Promise<void>
  /** @returns a descriptor of such a mount that has no mount point; closing it unmounts. */
  openIdmapped(root: number, userNamespace: number, readOnly: number): Promise<number>
  /** @returns the number of bytes that became holes in the disk. */
  trimFilesystem(root: number): Promise<number>

  /** Stops mount propagation for every mount of this namespace. */
  makeMountsPrivate(): Promise<void>
  /** Binds a file or directory without the mounts below it: read-only, nosuid, nodev. */
  bindReadOnly(source: Buffer, target: Buffer): Promise<void>
  /** Mounts an empty directory of at most 1 MiB. */
  mountTmpfs(target: Buffer): Promise<void>

  /** @returns the peer of a connected UNIX socket as the kernel recorded it (SO_PEERCRED); `undefined` of any other descriptor. */
  peerCredentials(fd: number): PeerCredentials | undefined
}

const addonPath = fileURLToPath(new URL('../../build/kernel.node', import.meta.url))

export const kernel = createRequire(import.meta.url)(addonPath) as Kernel

/** The `code` of a system error: `ENOENT` and so on; `undefined` for anything else. */
export function codeOf(error: unknown): string | undefined {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined
  return typeof code === 'string' ? code : undefined
}
