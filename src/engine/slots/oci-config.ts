import type { IdRange } from './id-ranges.ts'
import { idsPerSlot } from './id-ranges.ts'
import { type Seccomp, slotSeccomp } from './slot-seccomp.ts'

/** What a slot is made of. */
export interface SlotSpec {
  /** The generated root: the guest at /guest, mount points, and below /image the parts of what jails see. */
  slotRoot: string
  arch: NodeJS.Architecture
  /** The most open files that a run can be given. */
  openFilesMax: number
  /** Device nodes of this slot alone. */
  devicesDir: string
  /** Directory through which storage comes and goes, a shared mount; absent: none does. */
  dockDir?: string
}

interface OciMount {
  destination: string
  type: string
  source: string
  options: string[]
}

/** The part of https://github.com/opencontainers/runtime-spec (1.0.2) that a slot uses. */
export interface OciConfig {
  ociVersion: string
  hostname: string
  root: { path: string; readonly: boolean }
  mounts: OciMount[]
  process: {
    terminal: boolean
    user: { uid: number; gid: number }
    args: string[]
    env: string[]
    cwd: string
    capabilities: Record<'bounding' | 'effective' | 'permitted', string[]>
    noNewPrivileges: boolean
    oomScoreAdj: number
    rlimits: { type: string; soft: number; hard: number }[]
  }
  linux: {
    cgroupsPath: string
    namespaces: { type: string }[]
    uidMappings: { containerID: number; hostID: number; size: number }[]
    gidMappings: { containerID: number; hostID: number; size: number }[]
    resources: { devices: { allow: boolean; type?: string; major?: number; minor?: number; access: string }[] }
    rootfsPropagation: string
    maskedPaths: string[]
    readonlyPaths: string[]
    seccomp: Seccomp
  }
}

/** All within the slot's own user namespace; a jail gives up every one of them before it runs anything. */
const guestCapabilities = [
  'CAP_SYS_ADMIN', // mounts and namespaces of a jail
  'CAP_SYS_CHROOT', // entering a mount namespace
  'CAP_NET_ADMIN', // the loopback interface of a jail
  'CAP_SETUID', // becoming the user of a jail
  'CAP_SETGID',
  'CAP_SETPCAP', // emptying the bounding set
  'CAP_KILL', // ending a jail of another uid
  'CAP_CHOWN', // giving the home directory to its user
  'CAP_DAC_OVERRIDE', // preparing it afterwards
  'CAP_FOWNER',
  'CAP_FSETID', // what root of a sandbox has besides: guest/ids.c lists all of it
  'CAP_NET_BIND_SERVICE',
]

/** null, zero, full, random, urandom: what a jail's /dev is made from. Second line of defence: a user namespace cannot make nodes. */
const devices = [3, 5, 7, 8, 9].map((minor) => ({ allow: true, type: 'c', major: 1, minor, access: 'rw' }))

const mounts: OciMount[] = [
  // Unmasked: the kernel refuses a jail its own procfs where the visible one hides anything. The jail masks its own.
  { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
  {
    destination: '/dev',
    type: 'tmpfs',
    source: 'tmpfs',
    options: ['nosuid', 'noexec', 'strictatime', 'mode=755', 'size=64k'],
  },
  { destination: '/scratch', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'nodev', 'mode=755', 'size=16m'] },
]

/** The nodes that the guest binds to /dev of jails. */
export const deviceNames = ['null', 'zero', 'full', 'random', 'urandom', 'tty'] as const

const deviceMounts = (dir: string): OciMount[] =>
  deviceNames.map((name) => ({
    destination: `/devices/${name}`,
    type: 'bind',
    source: `${dir}/${name}`,
    options: ['bind', 'nosuid', 'noexec'],
  }))

/** What is mounted in the dock later appears inside; nothing goes the other way. */
const dockMount = (source: string): OciMount => ({
  destination: '/dock',
  type: 'bind',
  source,
  options: ['rbind', 'rslave', 'nosuid', 'nodev'],
})

/** What a builder needs within its own user namespace: giving files to any user and running scripts as several users. */
const builderCapabilities = [
  'CAP_SYS_CHROOT', // entering the image
  'CAP_CHOWN', // owners of files
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_FSETID', // set-user-ID modes, which mounts of images ignore
  'CAP_SETUID', // scripts of packages
  'CAP_SETGID',
]

/** Scripts of packages expect /proc and /dev in the image. */
const installerCapabilities = [...builderCapabilities, 'CAP_SYS_ADMIN', 'CAP_KILL', 'CAP_SETFCAP']

const readOnlyBind = (source: string, destination: string): OciMount => ({
  destination,
  type: 'bind',
  source,
  options: ['bind', 'ro', 'nosuid', 'nodev'],
})

/**
 * The OCI runtime configuration of a builder: a container with the isolation of a slot that has the programs of the
 * machine and fills the filesystem of an image. Pure, as `toOciConfig`.
 * @param spec `packages`: a directory with packages to install; absent: it unpacks layers.
 */
export function toBuilderConfig(
  spec: SlotSpec & { packages?: string },
  ids: Pick<IdRange, 'first'>,
  cgroup: { ociPath: string },
): OciConfig {
  const slot = toOciConfig(spec, ids, cgroup)
  const capabilities = spec.packages === undefined ? builderCapabilities : installerCapabilities
  const scratch: OciMount = {
    destination: '/tmp',
    type: 'tmpfs',
    source: 'tmpfs',
    options: ['nosuid', 'nodev', 'mode=1777', 'size=64m'],
  }
  return {
    ...slot,
    mounts: [
      // runc makes its own nodes in /dev, and fails where there is a terminal already.
      ...slot.mounts.filter(({ destination }) => !['/scratch', '/devices/tty'].includes(destination)),
      scratch,
      readOnlyBind('/usr', '/usr'),
      ...(spec.packages === undefined ? [] : [readOnlyBind(spec.packages, '/debs')]),
    ].map((mount) => ({ ...mount, destination: mount.destination.replace(/^\/devices\//, '/dev/') })),
    process: {
      ...slot.process,
      args: ['/usr/bin/python3', '-I', '-S', '-B', '/builder/builder.py'],
      env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL=C.UTF-8'],
      capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
    },
  }
}

/** The OCI runtime configuration of a slot. Pure: the same arguments give the same bytes, so a test can read it. */
export function toOciConfig(spec: SlotSpec, ids: Pick<IdRange, 'first'>, cgroup: { ociPath: string }): OciConfig {
  const mapping = [{ containerID: 0, hostID: ids.first, size: idsPerSlot }]
  return {
    ociVersion: '1.0.2',
    hostname: 'glovebox',
    root: { path: spec.slotRoot, readonly: true },
    mounts: [
      ...mounts,
      ...deviceMounts(spec.devicesDir),
      ...(spec.dockDir === undefined ? [] : [dockMount(spec.dockDir)]),
    ],
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: ['/guest'],
      env: ['PATH=/nowhere'],
      cwd: '/',
      capabilities: { bounding: guestCapabilities, effective: guestCapabilities, permitted: guestCapabilities },
      noNewPrivileges: true,
      // A negative value is refused in a user namespace; the jail raises its own instead.
      oomScoreAdj: 0,
      rlimits: [{ type: 'RLIMIT_NOFILE', soft: Math.min(1_024, spec.openFilesMax), hard: spec.openFilesMax }],
    },
    linux: {
      cgroupsPath: cgroup.ociPath,
      namespaces: ['user', 'pid', 'mount', 'ipc', 'uts', 'network', 'cgroup'].map((type) => ({ type })),
      uidMappings: mapping,
      gidMappings: mapping,
      resources: { devices: [{ allow: false, access: 'rwm' }, ...devices] },
      // Not private: the dock would be cut off before it is bound. Everything else is private already in the runner.
      rootfsPropagation: 'rslave',
      maskedPaths: [],
      readonlyPaths: [],
      seccomp: slotSeccomp(spec.arch),
    },
  }
}
