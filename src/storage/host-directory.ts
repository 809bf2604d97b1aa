/**
 * Mounts directories of the host in slots. The mount is the boundary: nothing above the directory can be reached through it,
 * whatever its links say, and read-only is a flag of the mount, which the slot cannot clear.
 */
import { constants } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { Refusal } from '../base/errors.ts'
import { codeOf, kernel } from '../kernel/kernel.ts'
import { Descriptor } from './descriptor.ts'
import type { Mounted } from './filesystems.ts'
import { withTemporaryName } from './temporary-names.ts'
import { refusing } from './walk.ts'

/** Opens a directory that the operator named. It must still be what it was when the server started. @throws Refusal. */
export async function openHostDirectory(directory: string): Promise<Descriptor> {
  try {
    return await Descriptor.open(directory, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW)
  } catch (error) {
    const reason = `the workspace directory ${directory} cannot be opened: ${codeOf(error) ?? 'unknown error'}`
    throw new Refusal('unavailable', { reason })
  }
}

/**
 * Mounts a directory for a slot. Its owner is root of the slot, and what that root creates belongs to the owner. Files of
 * others have no owner there. @throws Refusal unavailable where the filesystem cannot translate IDs.
 */
export async function mountHostDirectory(
  directory: string,
  target: string,
  initPid: number,
  readOnly: boolean,
): Promise<void> {
  await using root = await openHostDirectory(directory)
  const { uid, gid } = await root.stat()
  const [shownUid, shownGid] = await rootOf(initPid)
  await using namespace = new Descriptor(await kernel.openOwnerNamespace(uid, gid, shownUid, shownGid))
  try {
    await kernel.mountImage(root.fd, namespace.fd, readOnly ? 1 : 0, Buffer.from(target))
  } catch (error) {
    if (codeOf(error) !== 'EINVAL') throw error
    const reason = `the filesystem of ${directory} does not support idmapped mounts, which workspaces need`
    throw new Refusal('unavailable', { reason })
  }
}

/** Returns the user and group on this machine that are root in the user namespace of a process. */
const rootOf = (pid: number): Promise<[uid: number, gid: number]> =>
  Promise.all([firstId(pid, 'uid_map'), firstId(pid, 'gid_map')])

/** Returns the ID on this machine of ID 0 in the user namespace of a process. */
async function firstId(pid: number, map: 'uid_map' | 'gid_map'): Promise<number> {
  const [, id] = (await readFile(`/proc/${pid}/${map}`, 'utf8')).trim().split(/\s+/)
  return Number(id)
}

/** The directory on the disk of a sandbox that keeps the changes of a workspace. */
export const reviewDirectory = (workspace: string): string => `review-${workspace}`

/**
 * Mounts an overlay of a directory for a slot. The directory stays as it is; changes are kept on a disk.
 * @param places directory for mounts that exist while this works.
 */
export async function mountReviewed(
  { directory, name }: { directory: string; name: string },
  target: string,
  initPid: number,
  disk: Mounted,
  places: string,
): Promise<void> {
  await mkdir(places, { recursive: true, mode: 0o700 })
  const place = await mkdtemp(join(places, 'mount-'))
  const [lower, kept] = [join(place, 'lower'), join(place, 'kept')]
  const mounted: string[] = []
  try {
    await mkdir(lower)
    await mkdir(kept)
    await mountHostDirectory(directory, lower, initPid, true)
    mounted.push(lower)
    await using review = await openReview(disk.root.fd, name)
    await using namespace = await Descriptor.open(`/proc/${initPid}/ns/user`, constants.O_RDONLY)
    await kernel.mountImage(review.fd, namespace.fd, 0, Buffer.from(kept))
    mounted.push(kept)
    const paths = [lower, join(kept, 'upper'), join(kept, 'work'), target]
    const [lowerPath, upper, work, at] = paths.map((path) => Buffer.from(path))
    const [uid, gid] = await rootOf(initPid)
    await kernel.mountReview(lowerPath!, upper!, work!, at!, uid, gid)
  } finally {
    // The overlay has its own references.
    for (const path of mounted.reverse()) await kernel.unmount(Buffer.from(path), 1)
    for (const path of [lower, kept]) await rmdir(path).catch(() => undefined)
    await rm(place, { recursive: true, force: true })
  }
}

/** Opens the directory of a review, and creates it first if need be. */
async function openReview(root: number, name: string): Promise<Descriptor> {
  const review = await openOrMake(root, root, reviewDirectory(name))
  try {
    for (const part of ['upper', 'work']) await (await openOrMake(root, review.fd, part)).close()
    return review
  } catch (error) {
    await review.close()
    throw error
  }
}

async function openOrMake(root: number, parent: number, text: string): Promise<Descriptor> {
  const name = Buffer.from(text)
  const make = withTemporaryName((unfinished) => kernel.makeDirectory(root, unfinished, parent, name, 0o755, 0, 0))
  await make.catch((error: unknown) => {
    if (codeOf(error) !== 'EEXIST') throw error
  })
  const flags = constants.O_RDONLY | constants.O_DIRECTORY
  return new Descriptor(await refusing([name], kernel.openBeneath(parent, name, flags, 0)))
}
