/** Reads the superblock of an ext4 image that is not mounted: https://docs.kernel.org/filesystems/ext4/super.html */
import type { Descriptor } from './descriptor.ts'

export const blockBytes = 4096

export interface Superblock {
  blocks: number
  inodes: number
  /** The filesystem was not unmounted: the next mount replays the journal. */
  needsRecovery: boolean
  /** The kernel or a tool found damage, or a tool was interrupted: the filesystem must be checked. */
  hasErrors: boolean
}

const magic = 0xef53
const stateErrors = 0x0002
const incompatRecover = 0x0004
const superblockOffset = 1024

/** Returns the state; `undefined` if the file does not contain an ext4 filesystem with the expected features. */
export async function readSuperblock(image: Descriptor): Promise<Superblock | undefined> {
  const bytes = Buffer.alloc(1024)
  if ((await image.read(bytes, superblockOffset)) !== bytes.length) return undefined
  if (bytes.readUInt16LE(0x38) !== magic || 1024 << bytes.readUInt32LE(0x18) !== blockBytes) return undefined
  return {
    blocks: bytes.readUInt32LE(0x4) + bytes.readUInt32LE(0x150) * 2 ** 32,
    inodes: bytes.readUInt32LE(0x0),
    needsRecovery: (bytes.readUInt32LE(0x60) & incompatRecover) !== 0,
    hasErrors: (bytes.readUInt16LE(0x3a) & stateErrors) !== 0,
  }
}

export interface Extent {
  offset: number
  bytes: number
}

/**
 * Returns the position of the journal if it is contiguous and empty, as mkfs creates it. Uses the copy of its inode in the
 * superblock (s_jnl_blocks: the root of the extent tree in 15 words, then the size) instead of the inode.
 */
export async function emptyJournal(image: Descriptor): Promise<Extent | undefined> {
  const bytes = Buffer.alloc(1024)
  if ((await image.read(bytes, superblockOffset)) !== bytes.length) return undefined
  const root = bytes.subarray(0x10c, 0x10c + 17 * 4)
  const inTree = root.readUInt16LE(0) === 0xf30a && root.readUInt16LE(2) === 1 && root.readUInt16LE(6) === 0
  if (bytes.readUInt8(0xfd) !== 1 || !inTree) return undefined // s_jnl_backup_type: the copy contains extents
  const block = root.readUInt32LE(12 + 8) + root.readUInt16LE(12 + 6) * 2 ** 32
  const journal = { offset: block * blockBytes, bytes: root.readUInt16LE(12 + 4) * blockBytes }
  return (await isEmpty(image, journal)) ? journal : undefined
}

/** https://docs.kernel.org/filesystems/ext4/journal.html: big-endian; s_start is 0 when there is nothing to replay. */
async function isEmpty(image: Descriptor, journal: Extent): Promise<boolean> {
  const bytes = Buffer.alloc(64)
  if ((await image.read(bytes, journal.offset)) !== bytes.length) return false
  const isOurs = bytes.readUInt32BE(0) === 0xc03b3998 && bytes.readUInt32BE(0x10) * blockBytes === journal.bytes
  return isOurs && bytes.readUInt32BE(0x1c) === 0
}
