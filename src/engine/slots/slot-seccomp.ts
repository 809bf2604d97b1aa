import { constants } from 'node:os'

/**
 * The seccomp filter of a slot: allows by default, and denies system calls that no process in it needs. The jail adds an
 * allowlist. Runtimes skip names that libseccomp does not know, so the list can contain newer system calls.
 */
export interface SeccompRule {
  names: string[]
  action: 'SCMP_ACT_ERRNO'
  errnoRet: number
  args?: {
    index: number
    value: number
    valueTwo?: number
    op: 'SCMP_CMP_EQ' | 'SCMP_CMP_GT' | 'SCMP_CMP_NE' | 'SCMP_CMP_MASKED_EQ'
  }[]
}

export interface Seccomp {
  defaultAction: 'SCMP_ACT_ALLOW'
  architectures: string[]
  syscalls: SeccompRule[]
}

const { EPERM, ENOSYS, EAFNOSUPPORT } = constants.errno

const CLONE_NEWUSER = 0x1000_0000
const AF_NETLINK = 16
const NETLINK_ROUTE = 0
const TIOCSTI = 0x5412
const TIOCLINUX = 0x541c

const forbid = (...names: string[]): SeccompRule => ({ names, action: 'SCMP_ACT_ERRNO', errnoRet: EPERM })

const architectures: Partial<Record<NodeJS.Architecture, string>> = {
  x64: 'SCMP_ARCH_X86_64',
  arm64: 'SCMP_ARCH_AARCH64',
}

const rules: SeccompRule[] = [
  // A new user namespace grants capabilities, which most kernel exploits need. The slot already has one.
  {
    ...forbid('clone', 'unshare'),
    args: [{ index: 0, value: CLONE_NEWUSER, valueTwo: CLONE_NEWUSER, op: 'SCMP_CMP_MASKED_EQ' }],
  },
  // A filter cannot read its flags, which are in memory. With ENOSYS, every libc falls back to clone.
  { ...forbid('clone3'), errnoRet: ENOSYS },
  // Programs inside the kernel.
  forbid('bpf', 'perf_event_open'),
  // Keyrings are not part of any namespace a jail makes.
  forbid('add_key', 'keyctl', 'request_key'),
  // Executes system calls that filters do not see. ENOSYS, so that libuv and others fall back.
  { ...forbid('io_uring_setup', 'io_uring_enter', 'io_uring_register'), errnoRet: ENOSYS },
  // Allows a process to suspend the kernel in the middle of a copy.
  forbid('userfaultfd'),
  // Access to the memory or registers of another process.
  forbid('ptrace', 'process_vm_readv', 'process_vm_writev', 'process_madvise', 'pidfd_getfd', 'kcmp'),
  // Opening a file by handle can leave a mount (the "shocker" escape).
  forbid('open_by_handle_at', 'name_to_handle_at'),
  // The kernel itself, its modules and its machine.
  forbid('kexec_load', 'kexec_file_load', 'init_module', 'finit_module', 'delete_module', 'create_module'),
  forbid('query_module', 'get_kernel_syms', 'reboot', 'syslog', 'acct', 'swapon', 'swapoff', 'iopl', 'ioperm'),
  forbid('quotactl', 'quotactl_fd', 'nfsservctl', 'lookup_dcookie', 'vhangup', 'uselib', 'ustat', 'sysfs', '_sysctl'),
  forbid('settimeofday', 'stime', 'clock_settime', 'clock_settime64', 'clock_adjtime', 'clock_adjtime64', 'adjtimex'),
  // Watching a whole file system.
  forbid('fanotify_init', 'fanotify_mark'),
  // Moving memory between nodes reveals its location.
  forbid('move_pages', 'migrate_pages'),
  // Injecting input into the terminal of another process.
  ...[TIOCSTI, TIOCLINUX].map(
    (request): SeccompRule => ({
      ...forbid('ioctl'),
      args: [{ index: 1, value: 0xffff_ffff, valueTwo: request, op: 'SCMP_CMP_MASKED_EQ' }],
    }),
  ),
  // Sockets: UNIX, INET, INET6 and route netlink stay. Everything else (packet, vsock, AF_ALG, netfilter, …) does not exist.
  // An argument with nonzero upper bits is greater than 16, so it is denied too.
  ...[3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15].flatMap((family) =>
    socketRules({ index: 0, value: family, op: 'SCMP_CMP_EQ' }),
  ),
  ...socketRules({ index: 0, value: AF_NETLINK, op: 'SCMP_CMP_GT' }),
  ...socketRules(
    { index: 0, value: AF_NETLINK, op: 'SCMP_CMP_EQ' },
    { index: 2, value: NETLINK_ROUTE, op: 'SCMP_CMP_NE' },
  ),
]

function socketRules(...args: NonNullable<SeccompRule['args']>): SeccompRule[] {
  return [{ names: ['socket', 'socketpair'], action: 'SCMP_ACT_ERRNO', errnoRet: EAFNOSUPPORT, args }]
}

/** @throws Error on an architecture whose system call numbers are unknown. */
export function slotSeccomp(arch: NodeJS.Architecture): Seccomp {
  const name = architectures[arch]
  if (name === undefined) throw new Error(`no system call filter is known for ${arch}`)
  return { defaultAction: 'SCMP_ACT_ALLOW', architectures: [name], syscalls: rules }
}
