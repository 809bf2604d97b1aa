/** What the engine needs to know of its machine and its instance. The app fills it from the configuration. */
export interface EngineSettings {
  /** Of this engine alone: made at start, removed at the end. Bundles, mount points, runtime state. */
  stateDir: string
  /** Names cgroups, containers and id leases, so that two instances never touch each other: `[a-z0-9-]{1,32}`. */
  instanceId: string
  /** `auto`: the first of crun, runc, runsc that passes the probe. */
  runtime: 'auto' | RuntimeName
  /** First of the ids that slots use; ranges of 65,536 follow one another from here. */
  idBase: number
  /** Shared by every instance of the machine: one symbolic link per range in use. */
  idLeaseDir: string
  /** The guest binary, static. */
  guestPath: string
  /** What makes a python3 of the image a language host: a shared object. */
  pythonZygotePath: string
  /** The Node binary that runs are given. */
  nodePath: string
  /** Address of the Debian archive that the package cache serves, without a login; absent: none. */
  cachedArchive?: string
  /** Where cgroup hierarchies are mounted. */
  cgroupRoot: string
  /** Memory of what a slot holds outside its runs: the guest, and the processes that make jails. */
  baseMemoryBytes: number
  /** Processes of the same. */
  basePids: number
  /** Reads and writes per second of the runs of one slot on the device of one thread or volume. */
  storageIops: number
}

export const runtimeNames = ['crun', 'runc', 'runsc'] as const
export type RuntimeName = (typeof runtimeNames)[number]

/**
 * Defaults for everything that does not depend on the instance.
 *
 * systemd's table of user ids leaves 0x70000000 to 0x7fffffff unused:
 * https://github.com/systemd/systemd/blob/main/docs/UIDS-GIDS.md
 */
export const engineDefaults = {
  runtime: 'auto',
  idBase: 0x7000_0000,
  idLeaseDir: '/run/glovebox/ids',
  cgroupRoot: '/sys/fs/cgroup',
  baseMemoryBytes: 256 * 1024 * 1024,
  basePids: 64,
  storageIops: 2_000,
} as const satisfies Partial<EngineSettings>
