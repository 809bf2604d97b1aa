/** What test/security/attacks/look-around.py finds, and what it may find in a jail. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export const lookAroundPath = join(import.meta.dirname, '../security/attacks/look-around.py')
export const lookAround = readFileSync(lookAroundPath, 'utf8')

/** Its output. */
export interface Seen {
  environment: Record<string, string>
  pids: number[]
  known_pids: Record<string, string>
  environ_of_known: Record<string, string | number>
  init: Record<string, string>
  links_of_init: Record<string, string>
  descriptors_of_init: string | string[]
  canary_files: string[]
  known_files: Record<string, string | number>
  tcp: Record<string, string>
  tcp6: Record<string, string>
  addresses: Record<string, string>
  datagrams: Record<string, string>
  unix: Record<string, string>
  names: Record<string, string>
  interfaces: string[]
  host_name: string
  listening: string[]
  unix_names: string[]
  cgroup: string
  mountinfo: string
  facts: Record<string, string>
  proc: string[]
  sys: string[]
  dev: string[]
  root: string[]
  etc: string[]
}

/** Files in /proc that are not about a process and have content. All others are covered. */
export const shownOfProc = [
  ...['cgroups', 'cpuinfo', 'crypto', 'execdomains', 'filesystems', 'loadavg', 'meminfo', 'mounts', 'net', 'self'],
  ...['stat', 'swaps', 'sys', 'sysvipc', 'thread-self', 'uptime', 'version'],
]

/** The files of /sys: the processors and the limits of the run. */
export const shownOfSys = [
  ...['online', 'possible', 'present'].map((name) => `/sys/devices/system/cpu/${name}`),
  ...['cgroup.controllers', 'cpu.max', 'cpu/cpu.cfs_period_us', 'cpu/cpu.cfs_quota_us', 'memory.current'],
  ...[
    'memory.high',
    'memory.max',
    'memory.swap.max',
    'memory/memory.limit_in_bytes',
    'memory/memory.soft_limit_in_bytes',
    'pids.max',
  ],
  'pids/pids.max',
].map((name) => (name.startsWith('/') ? name : `/sys/fs/cgroup/${name}`))

/** Facts that identify a machine or show its load, below /proc. */
export const machineFacts = [
  ...['sys/kernel/random/boot_id', 'loadavg', 'vmstat', 'sys/fs/file-nr', 'sys/fs/inode-nr', 'sys/fs/inode-state'],
  ...['sys/fs/dentry-state', 'sys/kernel/pty/nr', 'swaps', 'cgroups', 'meminfo'],
]
