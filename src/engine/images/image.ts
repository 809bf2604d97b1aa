import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { StartRefused } from '../../base/errors.ts'
import { dpkgStatusPath, nodePackagesDir, packagesDir, packagesSlug, pythonPackagesDir } from '../../base/packages.ts'
import {
  figuresDir,
  figuresEnv,
  fixedEnv,
  preludePath,
  pythonZygotePath as pythonZygoteInImage,
} from '../jails/languages.ts'
import { aptCachePath } from '../jails/network-env.ts'
import { bindReadOnly, mountsBelow, unmount } from '../mounts.ts'
import type { EngineSettings } from '../settings.ts'
import { deviceNames } from '../slots/oci-config.ts'
import { writeCachedSources } from './cached-sources.ts'
import { copyProgram, link, makeDir, putFile } from './generated-files.ts'
import { writeKernels } from './kernel-files.ts'

/** The root filesystem of slots and jails. */
export interface Image {
  /** Root of a slot, read-only: the guest, mount points, and the parts of the root of jails below /image. */
  slotRoot: string
  /** Variables of every run, which variables of the caller override. */
  env: Readonly<Record<string, string>>
  release(): Promise<void>
}

/** Entries of /etc that are copied: configuration of libraries and languages, without users, hosts or secrets. */
const copiedFromEtc = [
  'apt/sources.list', // apt-get download, in a run with a network
  'apt/sources.list.d',
  'apt/trusted.gpg.d',
  'alternatives', // /usr/bin/awk and many others go through it
  'debian_version',
  'fonts',
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'locale.alias',
  'magic',
  'magic.mime',
  'matplotlibrc', // the only place where Debian's matplotlib searches for it
  'mime.types',
  'os-release',
  'perl',
  'protocols',
  'services',
  'ssl/certs/ca-certificates.crt',
  'ssl/certs/java/cacerts',
  'ssl/openssl.cnf',
  'terminfo',
]

/** Directories in /etc that contain parts of a language. */
const copiedFromEtcByPattern = [/^python3(\.\d+)?$/, /^java-\d+-openjdk$/]

/** Maximum size of a copied file, in bytes. The list of installed packages is the largest, with 1 KiB for each. */
const copiedFileMaxBytes = 16 * 1024 * 1024

/** Only names of files in it differ from the defaults: the user of a run can write to none of those of the system. */
const aptConfiguration = `
Dir::State "/tmp/apt";
Dir::State::status "/dev/null";
Dir::Cache "/tmp/apt";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Log "/tmp/apt";
Acquire::GzipIndexes "true";
Acquire::Languages "none";
APT::Sandbox::User "";
Acquire::Retries "0";
`

/** In place of its default for runs without a network, which need not try twice. `network-env.ts` names the file. */
const aptNetworkConfiguration = 'Acquire::Retries "3";\n'

/** Files of every image. */
export const written: Record<string, string> = {
  'etc/passwd':
    'root:x:0:0:root:/:/usr/sbin/nologin\nbaponi:x:1000:1000::/home/baponi:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n',
  'etc/group': 'root:x:0:\nbaponi:x:1000:\nnogroup:x:65534:\n',
  'etc/hosts': '127.0.0.1 localhost glovebox\n::1 localhost glovebox\n',
  'etc/hostname': 'glovebox\n',
  'etc/nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns files\nservices: files\nprotocols: files\n',
  'etc/resolv.conf': '',
  'etc/timezone': 'Etc/UTC\n',
  'etc/apt/apt.conf.d/50glovebox': aptConfiguration,
  'etc/apt/glovebox-network.conf': aptNetworkConfiguration,
  // In place of that for runs that reach the package cache.
  [aptCachePath]: aptNetworkConfiguration,
  [preludePath]: readFileSync(new URL('../../../guest/node/prelude.cjs', import.meta.url), 'utf8'),
}

/** Links of every image. */
export const linked: Record<string, string> = {
  'etc/localtime': '/usr/share/zoneinfo/Etc/UTC',
  'etc/mtab': '/proc/self/mounts',
  'var/tmp': '/tmp',
  // Code that models write often uses it.
  'mnt/data': '/home/baponi',
  workspace: '/home/baponi',
  // The packages of a profile: nothing is there in runs of others. Node.js finds them from every directory.
  [packagesDir.slice(1)]: `/volumes/${packagesSlug}`,
  node_modules: `${nodePackagesDir}/node_modules`,
}

export const nodeInImage = '/opt/glovebox/bin/node'

/** Mount points of a jail. */
export const mountPoints = ['proc', 'dev', 'tmp', 'run', 'sys', 'home/baponi', 'volumes']

/**
 * Creates the default image, which is the /usr of the machine with generated other directories, and the root of slots.
 * @param dir is created; the user IDs of slots need search permission (x) for its path.
 * @throws StartRefused if a mount fails.
 */
export async function openImage(
  dir: string,
  {
    guestPath,
    nodePath,
    pythonZygotePath,
    cachedArchive,
  }: Pick<EngineSettings, 'guestPath' | 'nodePath' | 'pythonZygotePath' | 'cachedArchive'>,
): Promise<Image> {
  const slotRoot = join(dir, 'slot-root')
  const image = join(dir, 'image')
  const release = async () => {
    for (const point of mountsBelow(slotRoot)) await unmount(point)
  }
  try {
    writeSlotRoot(slotRoot, guestPath, ['root', 'usr', 'node'])
    writeImage(image)
    if (cachedArchive !== undefined)
      putFile(join(image, aptCachePath), aptNetworkConfiguration + writeCachedSources(image, cachedArchive))
    const env = addFigures(image) ? { ...fixedEnv, ...figuresEnv } : fixedEnv
    copyProgram(pythonZygotePath, join(image, pythonZygoteInImage))
    const program = realpathSync(nodePath)
    if (!isAlone(program)) copyProgram(program, join(slotRoot, 'image/node/node'))
    await bindReadOnly(slotRoot, slotRoot)
    // Mounted here below the root instead of by the runtime: crun would create these mounts from outside, and then their
    // flags would not be locked. Side by side, since a layer of an overlay cannot have mounts below it.
    const inSlot = (name: string) => join(slotRoot, 'image', name)
    await bindReadOnly(image, inSlot('root'))
    await bindReadOnly('/usr', inSlot('usr'))
    if (isAlone(program)) await bindReadOnly(dirname(program), inSlot('node'))
    return { slotRoot, env, release }
  } catch (error) {
    await release().catch(() => undefined)
    throw error
  }
}

/** Returns the parts of the image of a slot, which are the lower layers of its root. */
export const imagePartsOf = (slotRoot: string): { name: string; dir: string }[] =>
  readdirSync(join(slotRoot, 'image')).map((name) => ({ name, dir: join(slotRoot, 'image', name) }))

/** Whether the directory of a program shows nothing else. A single file cannot be a layer of an overlay. */
export const isAlone = (program: string): boolean =>
  basename(program) === basename(nodeInImage) && readdirSync(dirname(program)).length === 1

/** Writes the root of the machine's own image, without its /usr. */
export function writeImage(root: string): void {
  makeDir(root)
  for (const point of mountPoints) makeDir(join(root, point))
  makeDir(join(root, 'usr'))
  makeDir(dirname(join(root, nodeInImage)))
  for (const name of ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32']) {
    // Without a merged /usr, some programs are outside of it.
    const path = join('/', name)
    if (!existsSync(path)) continue
    if (!lstatSync(path).isSymbolicLink())
      throw new StartRefused(`${path} is not a link into /usr on this machine.`, 'Merge /usr (package usrmerge).')
    link(join(root, name), readlinkSync(path))
  }
  for (const name of [
    ...copiedFromEtc,
    ...readdirSync('/etc').filter((entry) => copiedFromEtcByPattern.some((p) => p.test(entry))),
  ])
    copyPublic(join('/etc', name), join(root, 'etc', name))
  copyPublic('/var/lib/dpkg/status', join(root, dpkgStatusPath))
  for (const [path, text] of Object.entries(written)) putFile(join(root, path), text)
  writeKernels(root)
  for (const [path, target] of Object.entries(linked)) link(join(root, path), target)
}

/**
 * Added to `sitecustomize`: packages of a profile come before those of the image and after those that a program has
 * installed for its user. A virtual environment has its own packages only. The same order is in guest/python/prelude.c.
 */
export const packagesImport = `
def _add_packages(directory='${pythonPackagesDir}'):
    import os, site, sys
    if sys.prefix != sys.base_prefix or not os.path.isdir(directory):
        return
    known = list(sys.path)
    site.addsitedir(directory)
    added = [path for path in sys.path if path not in known]
    shared = [path for path in known if path.endswith('-packages') and path != site.getusersitepackages()]
    at = known.index(shared[0]) if shared else len(known)
    sys.path[:] = known[:at] + added + known[at:]


_add_packages()
`

/** Added to `sitecustomize`. */
export const figuresImport = `\nimport sys\n\nsys.path.append('${figuresDir}')\n`

/**
 * Makes `glovebox_figures` and the packages of profiles importable in every Python. On Debian, `sitecustomize` is in /etc, which the image generates, so
 * the options -I and -E and the variables of a program do not affect it, and no files of the program are read.
 * @returns `false` if not every Python can import it: matplotlib is unusable if it cannot import its backend.
 */
function addFigures(root: string): boolean {
  const versions = readdirSync('/usr/lib').filter((name) => /^python3\.\d+$/.test(name))
  const customs = versions.map((version) => ({
    usual: join('/usr/lib', version, 'sitecustomize.py'),
    own: join(root, 'etc', version, 'sitecustomize.py'),
  }))
  const isOurs = ({ usual, own }: { usual: string; own: string }) =>
    existsSync(own) && existsSync(usual) && join(root, realpathSync(usual)) === own
  if (customs.length === 0 || !customs.every(isOurs)) return false
  for (const { own } of customs) {
    chmodSync(own, 0o644)
    appendFileSync(own, figuresImport + packagesImport)
  }
  writeFigures(root)
  return true
}

/** Writes the module that shows figures; see `addFigures`. */
export function writeFigures(root: string): void {
  const source = readFileSync(new URL('../../../guest/python/figures.py', import.meta.url), 'utf8')
  putFile(join(root, figuresDir, 'glovebox_figures.py'), source)
}

/** @param parts of what jails see, below /image. */
export function writeSlotRoot(root: string, guestPath: string, parts: readonly string[]): void {
  for (const point of ['', 'proc', 'dev', 'scratch', 'dock']) makeDir(join(root, point))
  for (const part of parts) makeDir(join(root, 'image', part))
  for (const name of deviceNames) putFile(join(root, 'devices', name), '')
  copyProgram(guestPath, join(root, 'guest'))
}

/** Copies world-readable links, small files and directories. Skips all others. */
function copyPublic(from: string, to: string): void {
  const stat = lstatSync(from, { throwIfNoEntry: false })
  if (!stat) return
  if (stat.isSymbolicLink()) link(to, readlinkSync(from))
  if (stat.isDirectory() && (stat.mode & 0o005) === 0o005) {
    makeDir(to)
    for (const name of readdirSync(from)) copyPublic(join(from, name), join(to, name))
  }
  if (!stat.isFile() || !(stat.mode & 0o004) || stat.size > copiedFileMaxBytes) return
  // Such as the address of a package index with a password in it.
  if (/:\/\/[^\s/]*@/.test(readFileSync(from, 'latin1'))) return
  makeDir(dirname(to))
  copyFileSync(from, to)
  chmodSync(to, 0o444)
}
