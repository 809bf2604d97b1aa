/** Answers to the calls of test/security/attacks/calls.c inside a jail. */

/** The result of each call of attacks/calls-table.h inside. */
const answers: Readonly<Record<string, readonly string[]>> = {
  EPERM: [
    ...['unshare_user', 'unshare_mount', 'unshare_pid', 'unshare_net', 'unshare_ipc', 'unshare_uts', 'unshare_cgroup'],
    ...['unshare_time', 'clone_user', 'clone_mount', 'clone_pid', 'clone_net', 'clone_parent', 'clone_high_bits'],
    ...['setns_net', 'setns_mount', 'setns_pidfd'],
    ...['mount_tmpfs', 'mount_bind', 'mount_proc', 'mount_cgroup', 'remount_writable', 'make_shared', 'umount'],
    ...['open_tree', 'fsopen', 'fspick', 'move_mount', 'mount_setattr', 'pivot_root', 'chroot'],
    ...['name_to_handle', 'open_by_handle'],
    ...['ptrace_traceme', 'ptrace_attach', 'ptrace_seize', 'process_vm_readv', 'process_vm_writev'],
    ...['pidfd_getfd', 'process_madvise', 'kcmp'],
    ...['bpf', 'perf_event_open', 'io_uring_setup', 'io_uring_register', 'userfaultfd', 'fanotify_init'],
    ...['add_key', 'request_key', 'keyctl', 'keyctl_join_session', 'mbind'],
    ...['init_module', 'finit_module', 'delete_module', 'kexec_load', 'kexec_file_load', 'reboot', 'syslog', 'acct'],
    ...['swapon', 'swapoff', 'quotactl', 'clock_settime', 'settimeofday', 'adjtimex', 'sethostname', 'setdomainname'],
    ...['vhangup', 'iopl', 'ioperm', 'modify_ldt'],
    ...['setuid_root', 'setresuid_root', 'setgid_root', 'setgroups_root', 'capset', 'capset_inheritable'],
    ...['ambient_capability', 'personality_exec', 'real_time', 'io_priority', 'file_capability'],
    ...['trusted_attribute', 'chown_to_root', 'mknod_memory', 'mknod_disk', 'mknod_null', 'credentials_of_other'],
    ...['tiocsti', 'tiocsti_high_bits', 'tioclinux', 'tiocsetd'],
    ...[
      'socket_raw',
      'socket_raw6',
      'attach_filter',
      'attach_reuseport',
      'tcp_ulp',
      'netfilter_table',
      'netfilter_table6',
    ],
  ],
  EACCES: [
    ...['open_memory_of_init', 'priority', 'oom_score', 'write_core_pattern', 'write_hostname', 'write_forwarding'],
    'write_init_score',
  ],
  EINVAL: [
    ...['securebits', 'set_mm', 'core_scheduling', 'seccomp_listener', 'seccomp_filter', 'prctl_filter', 'merge_pages'],
  ],
  ENODEV: ['join_group', 'join_source'],
  ENOPROTOOPT: [...['tcp_key', 'fast_open_key', 'extension_header', 'zero_copy', 'namespace_cookie', 'socket_cookie']],
  ENOTTY: ['set_flags', 'move_extents'],
  EOPNOTSUPP: ['insert_range', 'collapse_range'],
  ENOENT: ['open_kmsg', 'open_memory_device', 'open_fuse', 'open_kvm', 'open_tun'],
  ENOSYS: ['clone3_user', 'clone3_cgroup', 'vmsplice', 'aio', 'landlock', 'memfd_secret', 'mq_open', 'huge_file'],
  ENOMEM: ['huge_page'],
  EAFNOSUPPORT: [
    ...['socket_alg', 'socket_vsock', 'socket_packet', 'socket_xdp', 'socket_bluetooth', 'socket_can', 'socket_tipc'],
  ],
  EPROTONOSUPPORT: [
    ...['socket_ping', 'socket_sctp', 'socket_mptcp', 'socket_netfilter', 'socket_audit', 'socket_uevent'],
    ...['socket_generic', 'socket_diag'],
  ],
  // Some kernels do not have these at all.
  'EACCES or ENOENT': ['write_modprobe', 'write_sysrq'],
  'ENOSYS or signal 31': ['x32_getpid'],
  'signal 31': ['i386_getpid'],
  ok: [
    ...['keeps_getpid', 'keeps_memfd', 'keeps_socket', 'keeps_routes', 'keeps_fork', 'keeps_buffers', 'keeps_reuse'],
    ...['keeps_no_delay', 'keeps_v6_only', 'keeps_flags', 'keeps_advice', 'keeps_preallocation', 'keeps_terminal'],
  ],
}

/** Only there on x86-64. */
const onlyOfIntel = ['iopl', 'ioperm', 'modify_ldt', 'x32_getpid', 'i386_getpid']

/** Each call of the table with its answer, alternatives separated by `or`. */
export const expectedAnswers = Object.entries(answers).flatMap(([answer, names]) =>
  names
    .filter((name) => process.arch === 'x64' || !onlyOfIntel.includes(name))
    .map((name): [string, string] => [name, answer]),
)

/** The printed results, by the name of the call. */
export function toAnswers(printed: string): ReadonlyMap<string, string> {
  const lines = printed.trim().split('\n')
  return new Map(lines.map((line): [string, string] => [line.replace(/ .*/, ''), line.replace(/^\S+ /, '')]))
}
