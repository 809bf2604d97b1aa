import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync, rmdirSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { engineDefaults } from '../../src/engine/settings.ts'

/** The instance whose traces are searched. */
export interface Scope {
  /** The directory that contains its home and its state. */
  directory: string
  /** Used by no other process on the host. */
  frontUid: number
}

/** What an instance has on the host, one line per item; two of these are compared before and after. */
export interface Traces {
  /** All of this mount namespace except those of other temporary directories and of containers. */
  mounts: string[]
  cgroups: string[]
  containers: string[]
  processes: string[]
  idLeases: string[]
  /** Below the instance's own directory, without the generated image skeleton, which the next start creates again. */
  files: string[]
  temporaryFiles: string[]
  loopDevices: string[]
  sockets: string[]
}

export interface Process {
  pid: number
  parent: number
  /** One letter, as proc_pid_stat(5) has it; `Z` is a zombie. */
  state: string
  uid: number
  words: string[]
}

/** A slot as the kernel shows it. */
export interface SlotSeen {
  id: string
  /** Its first process, the guest; `undefined` while the slot is created or ended. */
  guestPid: number | undefined
  /** Every process in it. */
  pids: number[]
  /**
   * Processes under the limits of a run, without jailer and language host. A jail that waits for its next run cannot be
   * told from one that runs: count only on a server with --no-prewarm-jails.
   */
  runPids: number[]
}

const temporaryDirectories = ['/tmp', '/var/tmp', '/dev/shm']

export function tracesOf(scope: Scope): Traces {
  const id = instanceIdOf(scope)
  return {
    mounts: mountsSeen(scope),
    cgroups: id === undefined ? [] : cgroupDirectories(id),
    containers: containersOf(scope),
    processes: processesOf(scope).map(({ pid, uid, words }) => `${pid} of ${uid}: ${words.join(' ')}`),
    idLeases: idLeasesOf(id),
    files: filesBelow(scope.directory),
    temporaryFiles: temporaryDirectories.flatMap((directory) => strangersIn(directory, scope, id)),
    loopDevices: loopDevicesOf(scope),
    sockets: socketsOf(scope),
  }
}

/** The id in the names of everything that an instance creates; `undefined` before its first start. */
export function instanceIdOf({ directory }: Scope): string | undefined {
  const path = join(directory, 'home', 'instance')
  return existsSync(path) ? readFileSync(path, 'utf8').trim() : undefined
}

/** Every process on the host, including zombies. */
export function allProcesses(): Process[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      const seen = processSeen(Number(name))
      return seen ? [seen] : []
    })
}

/** Processes of the instance: by their user, their cgroup, or their open files and mounts. Zombies are excluded. */
export function processesOf(scope: Scope): Process[] {
  const id = instanceIdOf(scope)
  return allProcesses().filter((seen) => seen.state !== 'Z' && belongs(seen, scope, id))
}

/** The slots of an instance that has started. */
export function slotsOf(scope: Scope): SlotSeen[] {
  const id = instanceIdOf(scope)
  if (id === undefined) return []
  const point =
    cgroupPoints().find(({ controllers }) => controllers.includes('pids') || controllers === '')?.point ?? ''
  const instance = join(point, 'glovebox', id)
  return directoriesIn(instance).map((name) => ({
    id: name,
    guestPid: pidsIn(join(instance, name, 'base')).find(isGuest),
    pids: ['base', 'run'].flatMap((leaf) => pidsIn(join(instance, name, leaf))),
    runPids: pidsIn(join(instance, name, 'run')).filter((pid) => !isJailer(pid)),
  }))
}

/** Removes what a killed server left behind; no process of its instance may be alive. */
export function removeTraces(scope: Scope): void {
  const id = instanceIdOf(scope)
  if (id === undefined) return
  for (const path of cgroupDirectories(id).reverse()) rmdirSync(path)
  for (const path of idLeasesOf(id)) unlinkSync(path)
}

/** The mount points below a directory, in this mount namespace. */
export const mountsBelow = (directory: string): string[] =>
  readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
    .filter((point) => point === directory || point.startsWith(`${directory}/`))

function mountsSeen({ directory }: Scope): string[] {
  const isStrange = (point: string) =>
    ['/tmp/', '/run/glovebox/', '/var/lib/containers/'].some((start) => point.startsWith(start)) &&
    !point.startsWith(directory)
  const lines = readFileSync('/proc/self/mounts', 'utf8').split('\n').filter(Boolean)
  // A systemd that boots in a container sets this option for the whole machine.
  return lines.filter((line) => !isStrange(line.split(' ')[1] ?? '')).map((line) => line.replace(',nsdelegate', ''))
}

function cgroupPoints(): { point: string; controllers: string }[] {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .flatMap((line) => {
      const [left = '', right = ''] = line.split(' - ')
      const [type, , options = ''] = right.split(' ')
      const point = left.split(' ')[4] ?? ''
      if (type === 'cgroup2') return [{ point, controllers: '' }]
      return type === 'cgroup' ? [{ point, controllers: options }] : []
    })
}

function cgroupDirectories(id: string): string[] {
  return cgroupPoints().flatMap(({ point }) => directoriesBelow(join(point, 'glovebox', id)))
}

function directoriesBelow(directory: string): string[] {
  if (!existsSync(directory)) return []
  return [directory, ...directoriesIn(directory).flatMap((name) => directoriesBelow(join(directory, name)))]
}

function containersOf({ directory }: Scope): string[] {
  const state = join(directory, 'state')
  return directoriesIn(state).flatMap((instance) => {
    const runtimes = join(state, instance, 'engine', 'runtime')
    return directoriesIn(runtimes).flatMap((name) => namesIn(join(runtimes, name)).map((slot) => `${name} ${slot}`))
  })
}

/** Leases are shared by every instance on the host; the target of each link names its owner. */
function idLeasesOf(id: string | undefined): string[] {
  const paths = namesIn(engineDefaults.idLeaseDir).map((name) => join(engineDefaults.idLeaseDir, name))
  return paths.filter((path) => linkOf(path).split(' ')[0] === id)
}

function filesBelow(directory: string): string[] {
  return namesIn(directory).flatMap((name) => {
    const path = join(directory, name)
    // What slots have as their root; files of it may go while this reads.
    if (/\/engine\/roots\/(?:image|builder)$/.test(path)) return []
    return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() ? [path, ...filesBelow(path)] : [path]
  })
}

function strangersIn(directory: string, scope: Scope, id: string | undefined): string[] {
  return namesIn(directory).flatMap((name) => {
    const path = join(directory, name)
    const stat = lstatSync(path, { throwIfNoEntry: false })
    if (!stat || path === scope.directory) return []
    const named = /^slt_/.test(name) || (id !== undefined && name.includes(id))
    return named || stat.uid === scope.frontUid ? [path] : []
  })
}

function loopDevicesOf({ directory }: Scope): string[] {
  return namesIn('/sys/block').flatMap((name) => {
    const backing = textOf(join('/sys/block', name, 'loop', 'backing_file'))
    return backing.startsWith(directory) ? [`${name} ${backing.trim()}`] : []
  })
}

function socketsOf({ directory }: Scope): string[] {
  const home = lstatSync(join(directory, 'home'), { throwIfNoEntry: false })
  const lock = home ? `@glovebox-${home.dev}-${home.ino}-` : undefined
  return readFileSync('/proc/net/unix', 'utf8')
    .split('\n')
    .map((line) => line.split(/\s+/).slice(7).join(' '))
    .filter((path) => path.startsWith(`${directory}/`) || (lock !== undefined && path.startsWith(lock)))
    .sort()
}

function processSeen(pid: number): Process | undefined {
  const stat = textOf(`/proc/${pid}/stat`)
  const uid = /^Uid:\t(\d+)/m.exec(textOf(`/proc/${pid}/status`))?.[1]
  if (stat === '' || uid === undefined) return undefined
  const [state = '', parent = '0'] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const words = textOf(`/proc/${pid}/cmdline`).split('\0').filter(Boolean)
  return { pid, parent: Number(parent), state, uid: Number(uid), words }
}

function belongs({ pid, uid, words }: Process, scope: Scope, id: string | undefined): boolean {
  if (pid === process.pid) return false
  if (uid === scope.frontUid) return true
  if (words.some((word) => word.includes(`${scope.directory}/`))) return true
  if (id !== undefined && textOf(`/proc/${pid}/cgroup`).includes(`/glovebox/${id}`)) return true
  if (textOf(`/proc/${pid}/mountinfo`).includes(`${scope.directory}/`)) return true
  return namesIn(`/proc/${pid}/fd`).some((fd) => linkOf(`/proc/${pid}/fd/${fd}`).startsWith(`${scope.directory}/`))
}

/** First in a pid namespace whose parent is ours; the first process of a jail is one level deeper. */
const isGuest = (pid: number): boolean => /^NSpid:\t\d+\t1$/m.test(textOf(`/proc/${pid}/status`))

/** The only process under the limits of a run that is not in a jail: it has no third number. */
const isJailer = (pid: number): boolean => /^NSpid:\t\d+\t\d+$/m.test(textOf(`/proc/${pid}/status`))

const pidsIn = (cgroup: string): number[] =>
  textOf(join(cgroup, 'cgroup.procs')).split('\n').filter(Boolean).map(Number)

/** Empty when the file is gone, since processes and their files can disappear at any moment. */
function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory).sort()
  } catch {
    return []
  }
}

const directoriesIn = (directory: string): string[] =>
  namesIn(directory).filter((name) => lstatSync(join(directory, name), { throwIfNoEntry: false })?.isDirectory())
