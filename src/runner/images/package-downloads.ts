import { execFile, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { copyFile, mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { Refusal } from '../../base/errors.ts'
import type { ImageProgress } from '../../base/image.ts'

const execute = promisify(execFile)

/** What the packages of a build are downloaded with. */
export interface DownloadOptions {
  image: string
  /** Keeps package lists and packages for the next build. Others can enter, but not list, the directories above it. */
  dir: string
  /** User that downloads; no other process has it. */
  uid: number
  progress(progress: ImageProgress): void
  signal: AbortSignal
}

/** Packages that were downloaded, and checked against the signed lists of their archive. */
export interface Packages {
  /** A directory with exactly these packages; removed by the caller. */
  dir: string
  /** File names of the essential packages and what they depend on. */
  first: readonly string[]
  /** Digest of all names and hashes. */
  digest: string
}

/** Also needed: what Debian's packages expect of every system. */
const basePackages = ['?essential', 'ca-certificates', 'netbase', 'tzdata', 'media-types']

const environment = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8' }

/**
 * Downloads Debian packages with everything that they depend on, from the archives of this machine, as a user without
 * privileges. Packages that an earlier call has downloaded are not downloaded again.
 * @throws Refusal build_failed, and the reason of the signal.
 */
export async function downloadPackages(packages: readonly string[], options: DownloadOptions): Promise<Packages> {
  const { dir, uid, progress } = options
  const failed = (problem: string) => new Refusal('build_failed', { image: options.image, problem })
  if ((await execute('apt-get', ['--version'], { env: environment }).catch(() => undefined)) === undefined)
    throw failed('apt-get is missing; images of packages need a Debian machine')
  await writeConfiguration(dir)
  await execute('chown', ['-R', '-h', '-P', `${uid}:${uid}`, dir], { env: environment })
  progress({ step: 'downloading', detail: 'package lists', done: 0, total: 0 })
  await apt(['update'], options)
  const base = await packagesFor(basePackages, options)
  const all = await packagesFor([...basePackages, ...packages], options)
  const download = () => apt(['install', '--download-only', ...basePackages, ...packages], options)
  await download()
  // A file that a crash has damaged has the right size, which is all that apt-get compares of what is there.
  let damaged = await selectPackages(all, dir)
  if (damaged.length > 0) {
    await download()
    damaged = await selectPackages(all, dir)
  }
  if (damaged.length > 0) throw failed(`${damaged.join(', ')} was changed on the disk`)
  const list = all.map(({ file, sha256 }) => `${file} ${sha256}`).toSorted()
  return {
    dir: join(dir, 'selected'),
    first: base.map(({ file }) => file),
    digest: `sha256:${createHash('sha256').update(list.join('\n')).digest('hex')}`,
  }
}

/**
 * Copies packages into the directory `selected`, which then has nothing else, and compares the copies with their hashes.
 * @returns the files that are not what the lists say; they are removed, so that they can be downloaded again.
 */
async function selectPackages(all: readonly PackageFile[], dir: string): Promise<string[]> {
  const selected = join(dir, 'selected')
  const damaged: string[] = []
  await rm(selected, { recursive: true, force: true })
  await mkdir(selected, { mode: 0o755 })
  for (const { file, sha256 } of all) {
    await copyFile(join(dir, 'archives', file), join(selected, file))
    if ((await hashOf(join(selected, file))) === sha256) continue
    damaged.push(file)
    await rm(join(dir, 'archives', file))
  }
  return damaged
}

/** The acquisition settings and archives of this machine, with directories of our own, and no package installed. */
async function writeConfiguration(dir: string): Promise<void> {
  for (const part of ['lists/partial', 'archives/partial', 'state/none/partial'])
    await mkdir(join(dir, part), { recursive: true })
  await writeFile(join(dir, 'state/status'), '')
  const { stdout } = await execute('apt-config', ['dump'], { env: environment, maxBuffer: 4 * 1024 * 1024 })
  // Index targets are lists of other tools, such as apt-file.
  const isUsed = (line: string) => /^Acquire::(?!IndexTargets|CompressionTypes|Changelogs|cdrom)/.test(line)
  const acquire = stdout.split('\n').filter(isUsed)
  const own = [
    `Dir::State "${join(dir, 'state')}";`,
    `Dir::State::status "${join(dir, 'state/status')}";`,
    `Dir::State::lists "${join(dir, 'lists')}";`,
    `Dir::Cache "${dir}";`,
    `Dir::Cache::archives "${join(dir, 'archives')}";`,
    'Dir::Etc::main "/dev/null";',
    'Dir::Etc::parts "/dev/null";',
    'Dir::Log "/dev/null";',
    'APT::Install-Recommends "false";',
    'APT::Get::Assume-Yes "true";',
    'APT::Keep-Downloaded-Packages "true";',
    'APT::Sandbox::User "";',
    'Acquire::Retries "3";',
    'Acquire::Languages "none";',
    'Acquire::ForceHash "sha256";',
  ]
  await writeFile(join(dir, 'apt.conf'), [...acquire, ...own, ''].join('\n'))
}

interface PackageFile {
  file: string
  sha256: string
}

/** Returns the packages that an installation would download, with the hashes of the signed lists. */
async function packagesFor(packages: readonly string[], options: DownloadOptions): Promise<PackageFile[]> {
  // Downloaded packages are not printed, so an empty directory takes their place.
  const none = join(options.dir, 'state/none')
  const lines = await apt(['-o', `Dir::Cache::archives=${none}`, 'install', '--print-uris', ...packages], options)
  const found = lines.flatMap((line) => {
    const [, file, sha256] =
      /^'[^']+' ([A-Za-z0-9][A-Za-z0-9+.~%_:-]*[.]deb) \d+ SHA256:([0-9a-f]{64})$/.exec(line) ?? []
    return file === undefined || sha256 === undefined ? [] : [{ file, sha256 }]
  })
  if (found.length === 0)
    throw new Refusal('build_failed', {
      image: options.image,
      problem: 'apt-get found no packages with SHA-256 hashes',
    })
  return found
}

/** Runs apt-get as the user. @returns its output. */
async function apt(args: readonly string[], { image, dir, uid, progress, signal }: DownloadOptions): Promise<string[]> {
  signal.throwIfAborted()
  // It ends with the runner: another apt-get would wait for its locks.
  const user = [`--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--no-new-privs', '--pdeathsig=KILL']
  const child = spawn(
    'setpriv',
    [...user, '--bounding-set=-all', '--inh-caps=-all', '--', 'apt-get', '-q', '-o', 'APT::Status-Fd=3', ...args],
    {
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
      env: { ...environment, APT_CONFIG: join(dir, 'apt.conf'), DEBIAN_FRONTEND: 'noninteractive', HOME: dir },
      signal,
      killSignal: 'SIGKILL',
    },
  )
  const lines: string[] = []
  let said = ''
  child.stderr?.on('data', (text: Buffer) => {
    said = (said + text.toString('utf8')).slice(-2000)
  })
  const status = createInterface({ input: child.stdio[3] as NodeJS.ReadableStream })
  status.on('line', (line) => {
    const [, percent, detail] = /^dlstatus:\d+:([\d.]+):(.*)$/.exec(line) ?? []
    if (percent !== undefined)
      progress({ step: 'downloading', detail: (detail ?? '').slice(0, 200), done: Number(percent), total: 100 })
  })
  const output = createInterface({ input: child.stdout as NodeJS.ReadableStream })
  output.on('line', (line) => {
    if (lines.length < 100_000) lines.push(line)
  })
  const code = await new Promise<number | null>((resolve) => {
    child.on('error', () => resolve(null))
    child.on('close', resolve)
  })
  signal.throwIfAborted()
  if (code === 0) return lines
  const errors = said.split('\n').filter((line) => line.startsWith('E: '))
  throw new Refusal('build_failed', { image, problem: (errors.join(' ') || said || 'apt-get failed').slice(0, 500) })
}

async function hashOf(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const piece of createReadStream(path)) hash.update(piece as Buffer)
  return hash.digest('hex')
}
