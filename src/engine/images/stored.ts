import { closeSync, constants, fstatSync, readSync, realpathSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { kernel } from '../../kernel/kernel.ts'
import { figuresEnv, fixedEnv, preludePath, pythonZygotePath as pythonZygoteInImage } from '../jails/languages.ts'
import { bindReadOnly, mountsBelow, unmount } from '../mounts.ts'
import type { EngineSettings } from '../settings.ts'
import { copyProgram, link, makeDir, putFile } from './generated-files.ts'
import {
  figuresImport,
  type Image,
  isAlone,
  linked,
  mountPoints,
  nodeInImage,
  packagesImport,
  writeFigures,
  writeSlotRoot,
  written,
} from './image.ts'
import { writeKernels } from './kernel-files.ts'

/** The filesystem of an image, mounted by the storage module. */
export interface MountedRoot {
  path: string
  root: { fd: number }
}

/** Files of an image that are read here. */
const readMaxBytes = 256 * 1024

/**
 * Makes the root of slots that run in a stored image: the filesystem of the image, read-only, and above it a layer with the
 * mount points, users and helpers that jails need. Nothing of the image is executed or followed here.
 * @param dir is created; the user IDs of slots need search permission (x) for its path.
 * @param env variables of the image, which the fixed ones override.
 * @param hasNode whether the image is given the Node.js of the product.
 */
export async function openStoredImage(
  dir: string,
  { path, root }: MountedRoot,
  settings: Pick<EngineSettings, 'guestPath' | 'nodePath' | 'pythonZygotePath'>,
  { env, hasNode }: { env: Readonly<Record<string, string>>; hasNode: boolean },
): Promise<Image> {
  const slotRoot = join(dir, 'slot-root')
  const top = join(dir, 'top')
  const release = async () => {
    for (const point of mountsBelow(slotRoot)) await unmount(point)
  }
  try {
    const program = realpathSync(settings.nodePath)
    writeSlotRoot(slotRoot, settings.guestPath, hasNode ? ['root', 'top', 'node'] : ['root', 'top'])
    const hasFigures = await writeTop(top, root.fd, settings.pythonZygotePath)
    if (hasNode) makeDir(dirname(join(top, nodeInImage)))
    if (hasNode && !isAlone(program)) copyProgram(program, join(slotRoot, 'image/node', basename(nodeInImage)))
    await bindReadOnly(slotRoot, slotRoot)
    await bindReadOnly(path, join(slotRoot, 'image/root'))
    await bindReadOnly(top, join(slotRoot, 'image/top'))
    if (hasNode && isAlone(program)) await bindReadOnly(dirname(program), join(slotRoot, 'image/node'))
    return { slotRoot, env: { ...env, ...fixedEnv, ...pathOf(env), ...(hasFigures && figuresEnv) }, release }
  } catch (error) {
    await release().catch(() => undefined)
    throw error
  }
}

/** Programs of the image come first, then the directories that every image has. */
const pathOf = ({ PATH }: Readonly<Record<string, string>>) =>
  PATH === undefined ? {} : { PATH: [...new Set([...PATH.split(':'), ...(fixedEnv.PATH ?? '').split(':')])].join(':') }

/** Files of `written` that an image brings itself, such as its hosts database. */
const ownFiles = ['etc/passwd', 'etc/group', 'etc/nsswitch.conf', 'etc/timezone', 'etc/localtime']

async function writeTop(top: string, image: number, pythonZygotePath: string): Promise<boolean> {
  makeDir(top)
  for (const point of mountPoints) makeDir(join(top, point))
  for (const [path, text] of Object.entries(written)) if (!ownFiles.includes(path)) putFile(join(top, path), text)
  for (const [path, target] of Object.entries(linked)) {
    if (!ownFiles.includes(path) && !(await exists(image, path))) link(join(top, path), target)
  }
  putFile(join(top, 'etc/passwd'), withUser(await read(image, 'etc/passwd'), written['etc/passwd'] ?? '', 2))
  putFile(join(top, 'etc/group'), withUser(await read(image, 'etc/group'), written['etc/group'] ?? '', 2))
  writeKernels(top)
  copyProgram(pythonZygotePath, join(top, pythonZygoteInImage))
  putFile(join(top, preludePath), written[preludePath] ?? '')
  await addPackages(top, image)
  return addFigures(top, image)
}

/** Where Debian's interpreters have their `sitecustomize`. */
const pythonVersions = Array.from({ length: 20 }, (_, minor) => `python3.${minor}`)

/** Makes the packages of profiles importable by interpreters that were not packaged by Debian. */
async function addPackages(top: string, image: number): Promise<void> {
  for (const version of pythonVersions) {
    const site = `usr/local/lib/${version}/site-packages`
    if (!(await exists(image, site))) continue
    const path = `${site}/sitecustomize.py`
    putFile(join(top, path), ((await read(image, path)) ?? '') + packagesImport)
  }
}

/** Shows figures of the interpreters of Debian, as in the image of the machine. */
async function addFigures(top: string, image: number): Promise<boolean> {
  let found = false
  for (const version of pythonVersions) {
    const path = `etc/${version}/sitecustomize.py`
    const text = await read(image, path)
    if (text === undefined) continue
    putFile(join(top, path), text + figuresImport + packagesImport)
    found = true
  }
  if (found) writeFigures(top)
  return found
}

/** The user of jails replaces one with the same name or number. */
function withUser(existing: string | undefined, needed: string, idColumn: number): string {
  if (existing === undefined) return needed
  const user = needed.split('\n').find((line) => line.startsWith('baponi:')) ?? ''
  const id = user.split(':')[idColumn]
  const others = existing.split('\n').filter((line) => {
    const fields = line.split(':')
    return line !== '' && fields[0] !== 'baponi' && fields[idColumn] !== id
  })
  return `${[...others, user].join('\n')}\n`
}

async function exists(image: number, path: string): Promise<boolean> {
  const fd = await open(image, path)
  if (fd !== undefined) closeSync(fd)
  return fd !== undefined
}

/** BOUNDARY: the image is not trusted; only a small regular file is read, and no link is followed. */
async function read(image: number, path: string): Promise<string | undefined> {
  const fd = await open(image, path)
  if (fd === undefined) return undefined
  try {
    const stat = fstatSync(fd)
    if (!stat.isFile() || stat.size > readMaxBytes) return undefined
    const bytes = Buffer.alloc(stat.size)
    return bytes.toString('utf8', 0, readSync(fd, bytes, 0, stat.size, 0))
  } finally {
    closeSync(fd)
  }
}

const open = (image: number, path: string): Promise<number | undefined> =>
  kernel.openBeneath(image, Buffer.from(path), constants.O_RDONLY | constants.O_NONBLOCK, 0).catch(() => undefined)
