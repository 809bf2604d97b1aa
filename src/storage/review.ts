/**
 * What a workspace with the mode `review` keeps: the upper layer of an overlay, compared with the directory of the host.
 *
 * BOUNDARY: code in a sandbox chose every name, link and byte of the upper layer. Both trees are walked by descriptor, and no
 * link is followed.
 */
import { constants } from 'node:fs'
import { lchown, readlink, symlink } from 'node:fs/promises'
import type { Review, ReviewedChange } from '../base/host-workspace.ts'
import { codeOf, kernel } from '../kernel/kernel.ts'
import { deletePath } from './deletion.ts'
import { Descriptor } from './descriptor.ts'
import { makeDirectory, readFile, writeFile } from './files.ts'
import { readEntries } from './listing.ts'
import { parsePath } from './paths.ts'
import { type Owner, openDirectory, openOrMakeDirectory, refusing, splitPath, toStatus } from './walk.ts'

const changesMax = 10_000
const unsupportedMax = 100
/** Directories below each other that are compared. */
const depthMax = 256
/** Content that one answer has, and that one file may have in it. */
const contentMaxBytes = 4 * 1024 * 1024
const fileContentMaxBytes = 256 * 1024

interface Comparison extends Review {
  withContent: boolean
  contentBytes: number
  isWanted(path: string): boolean
}

/** A directory of both trees. */
interface Pair {
  upper: number
  /** `undefined` where the host has no such directory, or the upper layer hides it. */
  host: number | undefined
  path: string
  depth: number
}

/**
 * Lists the changes between the directory of the host and the upper layer of an overlay above it.
 * @param paths changes at or below them; absent: all.
 */
export async function changesOf(
  upper: number,
  host: number,
  paths: readonly string[] | undefined,
  withContent: boolean,
): Promise<Review> {
  const isWanted = (path: string) => paths === undefined || paths.some((wanted) => isAtOrBelow(path, wanted))
  const comparison = { changes: [], unsupported: [], isIncomplete: false, withContent, contentBytes: 0, isWanted }
  await compare({ upper, host, path: '', depth: 0 }, comparison)
  const { changes, unsupported, isIncomplete } = comparison
  return { changes, unsupported, isIncomplete }
}

/** @param wanted path of an entry, with or without a slash at its end. */
const isAtOrBelow = (path: string, wanted: string): boolean => {
  const entry = wanted.replace(/^(\.\/)+/, '').replace(/\/+$/, '')
  return entry === '' || entry === '.' || path === entry || path.startsWith(`${entry}/`)
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

async function compare(pair: Pair, to: Comparison): Promise<void> {
  const seen = new Set<string>()
  for (const name of await namesIn(pair.upper)) {
    if (to.changes.length >= changesMax) {
      to.isIncomplete = true
      return
    }
    seen.add(name.toString('latin1'))
    let text: string
    try {
      text = decoder.decode(name)
    } catch {
      reportUnsupported(`${pair.path}${name.toString('latin1')}`, to)
      continue
    }
    await compareEntry(pair, name, `${pair.path}${text}`, to)
  }
  if (pair.host === undefined || !(await kernel.isOpaque(pair.upper))) return
  for (const name of await namesIn(pair.host)) {
    if (seen.has(name.toString('latin1'))) continue
    const kind = await kindOf(pair.host, name)
    if (kind) add({ path: `${pair.path}${name}`, change: 'deleted', kind, sizeBytes: 0 }, to)
  }
}

async function namesIn(directory: number): Promise<Buffer[]> {
  const names: Buffer[] = []
  for (let cookie = '0'; ; ) {
    const entries = await readEntries(directory, cookie)
    const last = entries.at(-1)
    if (last === undefined) return names.sort(Buffer.compare)
    for (const { name } of entries) names.push(name)
    cookie = last.cookie
  }
}

function reportUnsupported(path: string, to: Comparison): void {
  if (!to.isWanted(path)) return
  if (to.unsupported.length < unsupportedMax) to.unsupported.push(path)
  else to.isIncomplete = true
}

function add(change: ReviewedChange, to: Comparison): void {
  if (to.isWanted(change.path)) to.changes.push(change)
}

type Kind = ReviewedChange['kind']

/** Returns the kind of an entry; `undefined` for a missing entry, and for one of another kind. */
async function kindOf(directory: number, name: Buffer): Promise<Kind | undefined> {
  try {
    const { kind } = toStatus(await kernel.statName(directory, name))
    return kind === 'file' || kind === 'directory' || kind === 'link' ? kind : undefined
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    throw error
  }
}

async function compareEntry(pair: Pair, name: Buffer, path: string, to: Comparison): Promise<void> {
  const { kind, sizeBytes } = toStatus(await kernel.statName(pair.upper, name))
  const before = pair.host === undefined ? undefined : await kindOf(pair.host, name)
  switch (kind) {
    case 'device':
      // No process in a sandbox can create a device: it marks a deleted entry.
      if (before)
        add(
          {
            path,
            change: 'deleted',
            kind: before,
            sizeBytes: 0,
            ...(await content(pair.host, name, before, 'before', to)),
          },
          to,
        )
      return
    case 'fifo':
    case 'socket':
      reportUnsupported(path, to)
      return
    case 'directory':
      await compareDirectory(pair, name, path, before, to)
      return
    case 'file':
    case 'link': {
      if (before === kind && (await isSame(pair, name, kind))) return
      if (before === 'directory') add({ path, change: 'deleted', kind: before, sizeBytes: 0 }, to)
      const change = before === undefined || before === 'directory' ? 'added' : 'modified'
      if (!to.isWanted(path)) return
      const old = before && before !== 'directory' ? await content(pair.host, name, before, 'before', to) : {}
      add({ path, change, kind, sizeBytes, ...old, ...(await content(pair.upper, name, kind, 'after', to)) }, to)
    }
  }
}

async function compareDirectory(
  pair: Pair,
  name: Buffer,
  path: string,
  before: Kind | undefined,
  to: Comparison,
): Promise<void> {
  if (before !== undefined && before !== 'directory') add({ path, change: 'deleted', kind: before, sizeBytes: 0 }, to)
  if (before !== 'directory') add({ path, change: 'added', kind: 'directory', sizeBytes: 0 }, to)
  if (pair.depth >= depthMax) {
    to.isIncomplete = true
    return
  }
  const flags = constants.O_RDONLY | constants.O_DIRECTORY
  await using upper = new Descriptor(await kernel.openBeneath(pair.upper, name, flags, 0))
  await using host =
    before === 'directory' ? new Descriptor(await kernel.openBeneath(pair.host!, name, flags, 0)) : undefined
  await compare({ upper: upper.fd, host: host?.fd, path: `${path}/`, depth: pair.depth + 1 }, to)
}

/** Whether an entry was copied to the upper layer but is the same. */
async function isSame({ upper, host }: Pair, name: Buffer, kind: 'file' | 'link'): Promise<boolean> {
  if (kind === 'link') return (await targetOf(upper, name)) === (await targetOf(host!, name))
  const flags = constants.O_RDONLY | constants.O_NONBLOCK
  await using first = new Descriptor(await kernel.openBeneath(upper, name, flags, 0))
  await using second = new Descriptor(await kernel.openBeneath(host!, name, flags, 0))
  const [a, b] = [await first.stat(), await second.stat()]
  if (a.size !== b.size || (a.mode & 0o777) !== (b.mode & 0o777)) return false
  const [one, two] = [Buffer.alloc(64 * 1024), Buffer.alloc(64 * 1024)]
  for (let at = 0; at < a.size; ) {
    const [got, other] = [await first.read(one, at), await second.read(two, at)]
    if (got !== other || !one.subarray(0, got).equals(two.subarray(0, got))) return false
    if (got === 0) return true
    at += got
  }
  return true
}

/** The directory is open, and the last component is not followed. */
const targetOf = (directory: number, name: Buffer): Promise<string> =>
  readlink(Buffer.concat([Buffer.from(`/proc/self/fd/${directory}/`), name]), 'latin1')

async function content(
  directory: number | undefined,
  name: Buffer,
  kind: Kind,
  as: 'before' | 'after',
  to: Comparison,
): Promise<Partial<ReviewedChange>> {
  if (!to.withContent || directory === undefined || kind === 'directory') return {}
  if (kind === 'link') return { [as]: Buffer.from(await targetOf(directory, name), 'latin1').toString('base64') }
  await using file = new Descriptor(
    await kernel.openBeneath(directory, name, constants.O_RDONLY | constants.O_NONBLOCK, 0),
  )
  const { size } = await file.stat()
  if (size > fileContentMaxBytes || to.contentBytes + size > contentMaxBytes) return {}
  const bytes = Buffer.alloc(size)
  const got = await file.read(bytes, 0)
  to.contentBytes += got
  return { [as]: bytes.subarray(0, got).toString('base64') }
}

/** Makes a change in the directory of the host. New entries belong to its owner. @throws Refusal of files. */
export async function applyChange(
  { path, change, kind }: ReviewedChange,
  upper: number,
  host: number,
  owner: Owner,
): Promise<void> {
  if (change === 'deleted') {
    // A tree of any size, in bounded steps.
    while (!(await deletePath(host, path, true)).complete);
    return
  }
  switch (kind) {
    case 'directory':
      return makeDirectory(host, path, owner)
    case 'file': {
      const { bytes, close } = await readFile(upper, path)
      try {
        await writeFile(host, path, bytes, { owner, mode: await modeOf(upper, path) })
        return
      } finally {
        await close()
      }
    }
    case 'link':
      return makeLink(upper, host, path, owner)
  }
}

/** Permissions without set-user-ID bits: a program of the sandbox must not get the rights of the operator. */
async function modeOf(root: number, path: string): Promise<number> {
  const { parent, name } = splitPath(parsePath(path))
  await using directory = await openDirectory(root, parent)
  const [mode = 0o644] = await kernel.statName(directory.fd, name)
  return mode & 0o777
}

async function makeLink(upper: number, host: number, path: string, owner: Owner): Promise<void> {
  const { parent, name } = splitPath(parsePath(path))
  await using from = await openDirectory(upper, parent)
  await using directory = await openOrMakeDirectory(host, parent, owner)
  const target = Buffer.from(await targetOf(from.fd, name), 'latin1')
  const at = Buffer.concat([Buffer.from(`/proc/self/fd/${directory.fd}/`), name])
  if (await kindOf(directory.fd, name)) await kernel.removeName(directory.fd, name, 0)
  await refusing(parsePath(path), symlink(target, at))
  await lchown(at, owner.uid, owner.gid)
}
