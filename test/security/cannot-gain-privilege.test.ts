/** Promise 2: a run cannot gain privilege. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { compile, outside, plain } from '../support/attacks.ts'
import { Bench, type BenchSlot, benchMissing, runtimesHere } from '../support/slot-bench.ts'

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
  ENOTTY: ['set_flags'],
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

const expected = Object.entries(answers).flatMap(([answer, names]) =>
  names
    .filter((name) => process.arch === 'x64' || !onlyOfIntel.includes(name))
    .map((name): [string, string] => [name, answer]),
)

/** The printed results, by the name of the call. */
function toAnswers(printed: string): ReadonlyMap<string, string> {
  const lines = printed.trim().split('\n')
  return new Map(lines.map((line): [string, string] => [line.replace(/ .*/, ''), line.replace(/^\S+ /, '')]))
}

const calls = benchMissing === undefined ? compile('calls') : ''
/** Reports which user a set-user-id program of the host runs as, while that waits for a password. */
const su = `
import subprocess
child = subprocess.Popen(['/usr/bin/su', 'root', '-c', 'true'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
child.stdout.read(1)
print([line.split()[1:3] for line in open(f'/proc/{child.pid}/status') if line.startswith('Uid:')][0])
child.stdin.close()
`

/** The lines of /proc/self/status that describe the privileges of a process. */
const privileges = `grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\t ' ' '`

describe.skipIf(benchMissing !== undefined).each(runtimesHere)('a run in a slot of %s', (runtime) => {
  let bench: Bench
  let slot: BenchSlot
  let without: ReadonlyMap<string, string>
  let within: ReadonlyMap<string, string>

  beforeAll(async () => {
    bench = await Bench.open(runtime)
    slot = await bench.slot()
    without = toAnswers((await outside(calls)).stdout)
    within = toAnswers((await slot.attack(calls)).stdout)
  })
  afterAll(() => bench?.close())

  it('is attacked with every system call of the table', () => {
    expect([...within.keys()].sort()).toEqual(expected.map(([name]) => name).sort())
    expect([...without.keys()]).toEqual([...within.keys()])
  })

  for (const [name, answer] of expected) {
    it(`receives ${answer} for ${name}`, ({ skip }) => {
      expect(answer.split(' or ')).toContain(within.get(name))
      if (answer === 'ok') expect(without.get(name)).toBe('ok')
      // A refusal inside must come from the isolation. Where the host answers the same to its own root, its
      // kernel lacks the feature, or that root lacks the privilege, and nothing is proven.
      else skip(without.get(name) === within.get(name), `this machine answers ${answer} without any wall, too`)
    })
  }

  it('has no capability, no group, no way to gain one, and a system call filter', async () => {
    expect((await plain('sh', '-c', privileges)).stdout).toMatch(/CapEff: 0*[1-9a-f]/)
    expect((await slot.bash(privileges)).stdout.split('\n')).toEqual([
      'Uid: 1000 1000 1000 1000',
      'Gid: 1000 1000 1000 1000',
      expect.stringMatching(/^Groups: ?$/),
      ...['Inh', 'Prm', 'Eff', 'Bnd', 'Amb'].map((set) => `Cap${set}: 0000000000000000`),
      'NoNewPrivs: 1',
      'Seccomp: 2',
      '',
    ])
  })

  it('stays its own user in a set-user-id program', async ({ skip }) => {
    const asNobody = [
      'setpriv',
      '--reuid',
      '65534',
      '--regid',
      '65534',
      '--clear-groups',
      '/usr/bin/python3',
      '-c',
      su,
    ] as const
    const plainly = await plain(...asNobody)
    expect((await slot.python(su)).stdout).toBe("['1000', '1000']\n")
    skip(plainly.stdout !== "['65534', '0']\n", 'this machine has no working su')
  })

  it('finds set-user-id bits and devices ignored on every mount', async () => {
    const mounts = (await slot.bash('cat /proc/self/mounts')).stdout.trim().split('\n')
    const lacking = (flag: string) =>
      mounts
        .map((line) => line.split(' '))
        .filter(([, , , options]) => options?.split(',').includes(flag) !== true)
        .map(([, point]) => point)
    expect(mounts.length).toBeGreaterThan(10)
    expect(lacking('nosuid')).toEqual([])
    const devices = ['null', 'zero', 'full', 'random', 'urandom', 'tty', 'pts'].map((name) => `/dev/${name}`)
    expect(devices).toEqual(expect.arrayContaining(lacking('nodev')))
  })

  it('leaves no core file and runs no core handler when it crashes', async () => {
    // On this host a crash may leave one; this shows that the limit of a run forbids it.
    const outcome = await slot.bash('ulimit -Sc; ulimit -Hc; bash -c "kill -SEGV \\$\\$"; echo $?; ls -A . /tmp')
    expect(outcome.stdout).toBe('0\n0\n139\n.:\n\n/tmp:\n')
    expect((await slot.bash('kill -SEGV $$')).ending).toEqual({ kind: 'signaled', signal: 'SEGV' })
  })

  it('can execute what it created, in a file or in memory, without gaining anything', async () => {
    const code = `
import os
fd = os.memfd_create('program', 0)
os.write(fd, open('/usr/bin/true', 'rb').read())
print(os.waitstatus_to_exitcode(os.spawnv(os.P_WAIT, f'/proc/self/fd/{fd}', ['true'])))
`
    expect(await slot.python(code)).toMatchObject({ stdout: '0\n', ending: { kind: 'exited', code: 0 } })
  })
})

describe('gVisor', () => {
  it('is rejected as a runtime, with the reason and the remedy', async ({ skip }) => {
    skip(benchMissing !== undefined || !(await plain('sh', '-c', 'command -v runsc')).stdout, 'runsc is not installed')
    await expect(Bench.open('runsc')).rejects.toThrow(/StartRefused.*runsc.*gVisor.*limits/s)
  })
})
