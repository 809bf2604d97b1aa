/** What a jail guarantees to and about its program, with the real guest in a real slot; also under sanitizers. */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { GuestBuild } from '../../support/built-guest.ts'
import { frame, kinds, openSlot, type Request, type Slot, slotsMissing } from '../../support/guest-driver.ts'

/** The command lines of all processes on this host. */
function commandLines(): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        return [readFileSync(`/proc/${pid}/cmdline`, 'utf8')]
      } catch {
        return [] // ended meanwhile
      }
    })
}

function has(program: string): boolean {
  try {
    execFileSync('sh', ['-c', `test -x /usr/bin/${program}`])
    return true
  } catch {
    return false
  }
}

/** Makes system calls by number and prints the name of each error. */
const callsByNumber = `
import ctypes, errno, json, sys
libc = ctypes.CDLL(None, use_errno=True)
answers = {}
for name, number, *arguments in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(one) for one in arguments])
    answers[name] = errno.errorcode.get(ctypes.get_errno(), 'ok') if result == -1 else 'ok'
print(json.dumps(answers))
`

/** name, number on x86-64, arguments, expected */
const refused: [string, number, number[], string][] = [
  ['ptrace', 101, [0, 0, 0, 0], 'EPERM'],
  ['process_vm_readv', 310, [1, 0, 0, 0, 0, 0], 'EPERM'],
  ['process_vm_writev', 311, [1, 0, 0, 0, 0, 0], 'EPERM'],
  ['pidfd_getfd', 438, [0, 0, 0], 'EPERM'],
  ['process_madvise', 440, [0, 0, 0, 0, 0], 'EPERM'],
  ['kcmp', 312, [1, 1, 0, 0, 0], 'EPERM'],
  ['bpf', 321, [0, 0, 0], 'EPERM'],
  ['perf_event_open', 298, [0, 0, 0, 0, 0], 'EPERM'],
  ['userfaultfd', 323, [0], 'EPERM'],
  ['io_uring_setup', 425, [1, 0], 'EPERM'],
  ['add_key', 248, [0, 0, 0, 0, 0], 'EPERM'],
  ['keyctl', 250, [0, 0, 0, 0, 0], 'EPERM'],
  ['unshare(NEWUSER)', 272, [0x10000000], 'EPERM'],
  ['unshare(0)', 272, [0], 'EPERM'],
  ['setns', 308, [0, 0], 'EPERM'],
  ['mount', 165, [0, 0, 0, 0, 0], 'EPERM'],
  ['umount2', 166, [0, 0], 'EPERM'],
  ['pivot_root', 155, [0, 0], 'EPERM'],
  ['chroot', 161, [0], 'EPERM'],
  ['open_tree', 428, [0, 0, 0], 'EPERM'],
  ['move_mount', 429, [0, 0, 0, 0, 0], 'EPERM'],
  ['fsopen', 430, [0, 0], 'EPERM'],
  ['mount_setattr', 442, [0, 0, 0, 0, 0], 'EPERM'],
  ['init_module', 175, [0, 0, 0], 'EPERM'],
  ['open_by_handle_at', 304, [0, 0, 0], 'EPERM'],
  ['clone(NEWUSER)', 56, [0x10000000 | 17, 0, 0, 0, 0], 'EPERM'],
  ['clone(NEWNET)', 56, [0x40000000 | 17, 0, 0, 0, 0], 'EPERM'],
  ['clone3', 435, [0, 0], 'ENOSYS'],
  ['a call of tomorrow', 511, [], 'ENOSYS'],
  ['an x32 call', 0x40000000 + 39, [], 'ENOSYS'],
  ['vmsplice', 278, [1, 0, 0, 0], 'ENOSYS'],
  ['mq_open', 240, [0, 0, 0, 0], 'ENOSYS'],
  ['ioctl(TIOCSTI)', 16, [0, 0x5412, 0], 'EPERM'],
  ['ioctl(TIOCSTI) with high bits', 16, [0, 0x1_0000_5412, 0], 'EPERM'],
  ['ioctl(TIOCLINUX)', 16, [0, 0x541c, 0], 'EPERM'],
  ['ioctl(TIOCSETD)', 16, [0, 0x5423, 0], 'EPERM'],
  ['personality(READ_IMPLIES_EXEC)', 135, [0x400000], 'EPERM'],
  ['prctl(PR_SET_MM)', 157, [35, 0, 0, 0, 0], 'EINVAL'],
  ['seccomp with a listener', 317, [1, 8, 0], 'EINVAL'],
  ['a packet socket', 41, [17, 3, 0], 'EAFNOSUPPORT'],
  ['an AF_ALG socket', 41, [38, 5, 0], 'EAFNOSUPPORT'],
  ['a vsock socket', 41, [40, 1, 0], 'EAFNOSUPPORT'],
  ['a raw IP socket', 41, [2, 3, 1], 'EPERM'],
  ['an SCTP socket', 41, [2, 1, 132], 'EPROTONOSUPPORT'],
  ['a netfilter socket', 41, [16, 3, 12], 'EPROTONOSUPPORT'],
  ['setsockopt(SO_ATTACH_BPF)', 54, [0, 1, 50, 0, 0], 'EPERM'],
  ['setsockopt(TCP_ULP)', 54, [0, 6, 31, 0, 0], 'EPERM'],
  ['setsockopt(iptables)', 54, [0, 0, 64, 0, 0], 'EPERM'],
  ['setsockopt(ip6tables)', 54, [0, 41, 64, 0, 0], 'EPERM'],
  ['mknod of a device', 133, [0, 0o20666, 0x103], 'EPERM'],
]

/** The counterpart of the table: the filter must reject none of these. */
const granted: [string, number, number[]][] = [
  ['a UNIX socket', 41, [1, 1, 0]],
  ['a TCP socket', 41, [2, 1, 6]],
  ['a UDP socket over IPv6', 41, [10, 2, 17]],
  ['a route socket', 41, [16, 3, 0]],
  ['eventfd2', 290, [0, 0]],
  ['epoll_create1', 291, [0]],
  ['personality query', 135, [0xffffffff]],
  ['sync', 162, []],
  ['membarrier query', 324, [0, 0, 0]],
  ['prctl(PR_GET_NO_NEW_PRIVS)', 157, [39, 0, 0, 0, 0]],
]

const builds: GuestBuild[] = ['static', 'sanitized']

describe.skipIf(slotsMissing !== undefined).each(builds)('a jail made by the %s guest', (build) => {
  let slot: Slot

  beforeAll(async () => {
    slot = await openSlot({ build })
  })
  afterAll(async () => {
    await slot?.close()
    expect(slot?.diagnostics).toBe('') // sanitizers report here
  })

  const bash = (script: string, more: Partial<Request> = {}) => slot.run({ args: ['bash', '-c', script], ...more })
  const python = (script: string, more: Partial<Request> = {}) =>
    slot.run({ args: ['/usr/bin/python3', '-I', '-c', script], ...more })
  /** Standard output of a script that must succeed. */
  const said = async (script: string, more: Partial<Request> = {}) => {
    const outcome = await bash(script, more)
    expect(outcome.stderr.toString()).toBe('')
    expect(outcome).toMatchObject({ how: 'exited', value: 0 })
    return outcome.stdout.toString()
  }

  describe('reports how the program ended', () => {
    it.each([0, 1, 3, 255])('by its exit code %i', async (code) => {
      expect(await bash(`exit ${code}`)).toMatchObject({ how: 'exited', value: code })
    })
    it.each([
      ['KILL', 9],
      ['TERM', 15],
      ['SEGV', 11],
      ['ABRT', 6],
      ['INT', 2],
    ])('by signal %s', async (name, number) => {
      expect(await bash(`kill -${name} $$`)).toMatchObject({ how: 'signaled', value: number })
    })
    it('as 127 with one line when the program does not exist', async () => {
      const outcome = await slot.run({ args: ['python9'] })
      expect(outcome).toMatchObject({ how: 'exited', value: 127 })
      expect(outcome.stderr.toString()).toBe('glovebox: python9: command not found\n')
    })
    it('as 126 with one line when the file is not a program', async () => {
      const outcome = await slot.run({ args: ['/etc/passwd'] })
      expect(outcome).toMatchObject({ how: 'exited', value: 126 })
      expect(outcome.stderr.toString()).toBe('glovebox: /etc/passwd: Permission denied\n')
    })
    it('with the default action of SIGPIPE in place', async () => {
      expect(await said('set -o pipefail; yes | head -n 1 || echo $?')).toBe('y\n141\n')
    })
  })

  describe('ends with its main process', () => {
    it('leaves no survivor, whether detached, stopped or ignoring signals', async () => {
      const marker = `86400.${process.pid}${Date.now()}`
      const outcome = await python(`
import os, signal, sys, time
for kind in range(6):
    if os.fork() == 0:
        os.setsid()
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        if os.fork() == 0:
            if kind == 1: os.kill(os.getpid(), signal.SIGSTOP)
            os.execvp('sleep', ['sleep', '${marker}'])
        os._exit(0)
time.sleep(0.3)
print(sum('${marker}' in open(f'/proc/{pid}/cmdline').read() for pid in os.listdir('/proc') if pid.isdigit()))
`)
      expect(Number(outcome.stdout.toString())).toBeGreaterThanOrEqual(5)
      expect(commandLines().filter((line) => line.startsWith('sleep') && line.includes(marker))).toEqual([])
    })
    it('does not wait for a background process that holds its output open', async () => {
      expect(await said('sleep 86400 & echo done')).toBe('done\n')
    })
    it('sends everything that was written before', async () => {
      const outcome = await python("import os; os.write(1, b'x' * 1000000); os.write(2, b'y' * 700000); os._exit(4)")
      expect([outcome.value, outcome.stdout.length, outcome.stderr.length]).toEqual([4, 1000000, 700000])
    })
  })

  describe('transfers source code and standard input', () => {
    const megabyte = `${'# padding\n'.repeat(99_990)}import sys; print(len(sys.stdin.read()), sys._getframe().f_lineno)\n`

    it('accepts 1 MB of code on standard input', async () => {
      const outcome = await slot.run({ args: ['/usr/bin/python3', '-I', '-'], code: megabyte })
      expect([outcome.value, outcome.stdout.toString(), outcome.stderr.toString()]).toEqual([0, '0 99991\n', ''])
    })
    it('accepts 1 MB of code as a read-only file, with 2 MB of standard input', async () => {
      const codeFile = 'main.py'
      const stdin = Buffer.alloc(2 << 20, 'ab\n')
      const args = ['/usr/bin/python3', '-I', `/run/glovebox/${codeFile}`]
      const outcome = await slot.run({ args, code: megabyte, codeFile, stdin })
      expect([outcome.value, outcome.stdout.toString()]).toEqual([0, `${2 << 20} 99991\n`])
      const tried = await bash(
        'cd /run/glovebox; echo x >>main.py; echo x >other; rm -f main.py; chmod 777 main.py; wc -c <main.py',
        { code: megabyte, codeFile },
      )
      expect(tried.stdout.toString()).toBe(`${megabyte.length}\n`)
      expect(tried.stderr.toString().match(/Permission denied|Read-only file system|not permitted/g)).toHaveLength(4)
    })
    it('keeps the bytes of standard input unchanged', async () => {
      const stdin = Buffer.from(Array.from({ length: 300_000 }, (_, at) => (at * 7919) % 256))
      const outcome = await slot.run({ args: ['cat'], stdin })
      expect(outcome.stdout.equals(stdin)).toBe(true)
    })
    it('tolerates a program that dies without reading it', async () => {
      expect(await slot.run({ args: ['false'], stdin: Buffer.alloc(2 << 20) })).toMatchObject({
        how: 'exited',
        value: 1,
      })
    })
    it.each([[undefined], ['']])('is empty if it was not sent (%j)', async (stdin) => {
      expect(await said('cat; echo end', stdin === undefined ? {} : { stdin })).toBe('end\n')
    })
    it('can be opened by name', async () => {
      const outcome = await bash('cat /dev/stdin; echo out >/dev/stdout; echo err >/dev/stderr', { stdin: 'in\n' })
      expect([outcome.stdout.toString(), outcome.stderr.toString()]).toEqual(['in\nout\n', 'err\n'])
    })
  })

  describe('removes every privilege', () => {
    it('runs as one user, without groups or capabilities, under a filter', async () => {
      const status = await said('cat /proc/self/status')
      const line = (name: string) => new RegExp(`^${name}:[ \\t]*(.*?)[ \\t]*$`, 'm').exec(status)?.[1]
      expect(line('Uid')).toBe('1000\t1000\t1000\t1000')
      expect(line('Gid')).toBe('1000\t1000\t1000\t1000')
      expect(line('Groups')).toBe('')
      for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'])
        expect([set, line(set)]).toEqual([set, '0000000000000000'])
      expect([line('NoNewPrivs'), line('Seccomp')]).toEqual(['1', '2'])
      expect([line('SigBlk'), line('SigIgn')]).toEqual(['0000000000000000', '0000000000000000'])
    })
    it('passes on three descriptors, one for images, and the requested environment, nothing else', async () => {
      const outcome = await slot.run({ args: ['ls', '/proc/self/fd'] })
      expect(outcome.stdout.toString()).toBe('0\n1\n2\n3\n60\n') // 3 is the descriptor of ls itself
      const env = await slot.run({ args: ['env'], env: { ONLY: 'this' } })
      expect(env.stdout.toString().split('\n').toSorted()).toEqual([
        '',
        'HOME=/home/baponi',
        'LANG=C.UTF-8',
        'ONLY=this',
        'PATH=/usr/local/bin:/usr/bin:/bin:/opt/glovebox/bin',
      ])
    })
    it('sees only its own processes, and can neither inspect nor signal their init', async () => {
      expect(await said('ls /proc | grep -c "^[0-9]*$"; cat /proc/1/comm')).toMatch(/^[34]\ninit\n$/)
      const outcome = await bash('ls /proc/1/fd; cat /proc/1/environ; ls /proc/1/root; kill -9 1; echo alive')
      expect(outcome.stdout.toString()).toBe('alive\n')
      expect(outcome.stderr.toString().match(/Permission denied|not permitted/g)).toHaveLength(4)
    })
    it('is the first candidate of the kernel when memory is short', async () => {
      expect(await said('cat /proc/self/oom_score_adj /proc/1/oom_score_adj')).toBe('500\n0\n')
    })
    it('has a session of its own without a terminal, and the usual umask', async () => {
      expect(await said('cut -d " " -f 1,6,7 /proc/$$/stat; umask; pwd; hostname')).toBe(
        '2 2 0\n0022\n/home/baponi\nglovebox\n',
      )
    })
    it.skipIf(process.arch !== 'x64')(
      'refuses the system calls that nobody needs, each as programs expect',
      async () => {
        const list = JSON.stringify(refused.map(([name, number, rest]) => [name, number, ...rest]))
        const outcome = await slot.run({ args: ['/usr/bin/python3', '-I', '-c', callsByNumber, list] })
        expect(outcome.stderr.toString()).toBe('')
        expect(JSON.parse(outcome.stdout.toString())).toEqual(
          Object.fromEntries(refused.map(([name, , , error]) => [name, error])),
        )
      },
    )
    it.skipIf(process.arch !== 'x64')('leaves the ordinary ones alone', async () => {
      const list = JSON.stringify(granted.map(([name, number, rest]) => [name, number, ...rest]))
      const outcome = await slot.run({ args: ['/usr/bin/python3', '-I', '-c', callsByNumber, list] })
      expect(JSON.parse(outcome.stdout.toString())).toEqual(Object.fromEntries(granted.map(([name]) => [name, 'ok'])))
    })
    it.skipIf(process.arch !== 'x64' || !has('gcc'))(
      'kills a program that calls by the way of another architecture',
      async () => {
        const program = 'int main(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return 0; }'
        const outcome = await bash(`cat >a.c; gcc -o a a.c && ./a; echo $?`, { stdin: program, tmpBytes: 64 << 20 })
        expect(outcome.stdout.toString()).toBe(`${128 + 31}\n`)
      },
    )
  })

  describe('shows a minimal system', () => {
    it('has a root of known names and is writable only in home, tmp and shared memory', async () => {
      expect(await said('ls /')).toBe('bin\ndev\netc\nhome\nlib\nlib64\nopt\nproc\nrun\nsbin\nsys\ntmp\nusr\n')
      expect(
        await said(
          'for d in / /usr /etc /opt /dev /run /sys /home /proc /home/baponi /tmp /dev/shm; do (>$d/x) 2>/dev/null && echo $d; done',
        ),
      ).toBe('/home/baponi\n/tmp\n/dev/shm\n')
    })
    it('mounts everything nosuid, and nodev except for devices', async () => {
      const mounts = (await said('cat /proc/self/mounts'))
        .trim()
        .split('\n')
        .map((line) => line.split(' '))
      expect(mounts.length).toBeGreaterThan(10)
      expect(mounts.filter((mount) => !mount[3]?.includes('nosuid'))).toEqual([])
      expect(mounts.filter((mount) => !mount[3]?.includes('nodev') && !mount[1]?.startsWith('/dev/'))).toEqual([])
    })
    it('hides the information about the host in /proc', async () => {
      const readable = await said(
        'cd /proc; for f in kcore keys key-users timer_list sched_debug kmsg interrupts softirqs kallsyms config.gz modules iomem ioports cmdline partitions diskstats devices locks zoneinfo buddyinfo; do [ -n "$(head -c 1 $f 2>/dev/null | tr "\\0" x)" ] && echo $f; done; for d in acpi scsi bus fs irq tty driver pressure; do [ -e $d ] && ls $d; done; true',
      )
      expect(readable).toBe('')
      expect(await bash('echo b >/proc/sysrq-trigger')).toMatchObject({ value: 1 })
      expect(await bash('echo 1 >/proc/sys/vm/drop_caches')).toMatchObject({ value: 1 })
    })
    it.each([1, 3])('reports %i processors to programs', async (cpus) => {
      expect(
        await said(
          '/usr/bin/python3 -c "import os; print(os.cpu_count())"; grep -c ^cpu[0-9] /proc/stat; cat /sys/devices/system/cpu/{online,possible,present}',
          { cpus },
        ),
      ).toBe(`${cpus}\n${cpus}\n${`${cpus === 1 ? '0' : `0-${cpus - 1}`}\n`.repeat(3)}`)
    })
    it('has working devices and pseudo-terminals', async () => {
      const devices = await bash(
        'head -c 4 /dev/zero | wc -c; head -c 8 /dev/urandom | wc -c; echo x >/dev/null; echo x >/dev/full; echo $?',
      )
      expect(devices.stdout.toString()).toBe('4\n8\n1\n')
      const outcome = await python(
        "import pty, sys; sys.exit(pty.spawn(['sh', '-c', 'test -t 1 && tty && exit 7']) >> 8)",
      )
      expect([outcome.value, outcome.stdout.toString()]).toEqual([7, '/dev/pts/0\r\n'])
    })
    it('has a loopback network, and any other address fails immediately', async () => {
      const outcome = await python(`
import errno, socket
for family, here, there in ((socket.AF_INET, '127.0.0.1', '192.0.2.1'), (socket.AF_INET6, '::1', '2001:db8::1')):
    server = socket.create_server((here, 0), family=family)
    client = socket.create_connection(server.getsockname()[:2])
    client.sendall(b'x'); print(server.accept()[0].recv(1))
    try: socket.create_connection((there, 80))
    except OSError as error: print(errno.errorcode[error.errno])
print([name for _, name in socket.if_nameindex()])
`)
      expect(outcome.stdout.toString().replaceAll('EADDRNOTAVAIL', 'ENETUNREACH')).toBe(
        "b'x'\nENETUNREACH\nb'x'\nENETUNREACH\n['lo']\n",
      )
    })
  })

  describe('limits the resources of the program', () => {
    it.each(['/tmp', '/dev/shm', '/home/baponi'])('in bytes and in files of %s', async (path) => {
      const outcome = await bash(
        `cd ${path}; head -c 20M /dev/zero >big; stat -c %s big; rm big; i=0; while (>f$i) 2>/dev/null && [ $i -lt 9000 ]; do i=$((i+1)); done; echo $i`,
        { tmpBytes: 4 << 20, homeBytes: 4 << 20 },
      )
      const [bytes, files] = outcome.stdout.toString().trim().split('\n').map(Number)
      expect(bytes).toBe(4 << 20)
      expect(files).toBeGreaterThan(900)
      expect(files).toBeLessThan(1024)
      expect(outcome.stderr.toString()).toContain('No space left on device')
    })
    it('in open files, size of a file, processes and cores', async () => {
      expect(await said('ulimit -n; ulimit -Hn', { openFiles: 77 })).toBe('77\n77\n')
      expect(await bash('head -c 3M /dev/zero >big; echo $?; stat -c %s big', { fileBytes: 1 << 20 })).toMatchObject({
        stdout: Buffer.from(`${128 + 25}\n${1 << 20}\n`),
      })
      const forks = await python(
        'import os, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(86400)\n    n += 1\nexcept BlockingIOError: print(n)',
        { pids: 20 },
      )
      expect(Number(forks.stdout.toString())).toBe(19)
      expect(await said("/usr/bin/python3 -c 'import resource; print(resource.getrlimit(resource.RLIMIT_CORE))'")).toBe(
        '(1, 1)\n',
      )
    })
  })

  describe('runs common software', () => {
    it('threads, processes, pools, event loops and locks of python', async () => {
      const outcome = await python(
        `
import asyncio, concurrent.futures, mmap, multiprocessing, sqlite3, subprocess, threading
thread = threading.Thread(target=lambda: print('thread')); thread.start(); thread.join()
print(subprocess.run(['echo', 'child'], capture_output=True).stdout)
async def loop():
    child = await asyncio.create_subprocess_exec('echo', 'async', stdout=subprocess.PIPE)
    print((await child.communicate())[0])
asyncio.run(loop())
with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))
with concurrent.futures.ProcessPoolExecutor(2) as pool: print(list(pool.map(abs, [-3])))
print(multiprocessing.Queue() is not None, len(mmap.mmap(-1, 4096)))
print(sqlite3.connect('/home/baponi/db').execute('select 1 + 1').fetchone())
`,
        { pids: 128 },
      )
      expect(outcome.stderr.toString()).toBe('')
      expect(outcome.stdout.toString()).toBe("thread\nb'child\\n'\nb'async\\n'\n[1, 2]\n[3]\nTrue 4096\n(2,)\n")
    })
    it('node with workers, children and modules', async () => {
      const program = `
const { Worker } = require('node:worker_threads')
const { execFileSync } = require('node:child_process')
const os = require('node:os')
const worker = new Worker('require("node:worker_threads").parentPort.postMessage(6 * 7)', { eval: true })
worker.on('message', (answer) => console.log(answer))
console.log(execFileSync('echo', ['child']).toString().trim(), os.cpus().length, os.availableParallelism() > 0)
`
      const outcome = await slot.run({ args: ['/opt/glovebox/bin/node', '-e', program], pids: 128 })
      expect(outcome.stderr.toString()).toBe('')
      expect(outcome.stdout.toString()).toBe('child 1 true\n42\n')
    })
    it.skipIf(!has('git'))('git', async () => {
      expect(
        await said(
          'git init -q r && cd r && echo a >f && git add f && git -c user.name=u -c user.email=e commit -qm m && git log --format=%s && git status --short',
        ),
      ).toBe('m\n')
    })
    it.skipIf(!has('gcc'))('a compiler', async () => {
      const program = '#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n'
      expect(await said('gcc -O1 -x c -o a - && ./a', { stdin: program, tmpBytes: 64 << 20 })).toBe('built\n')
    })
    it.skipIf(!has('file'))('a program that adds its own seccomp filter', async () => {
      expect(await said('file -b /etc/passwd')).toBe('ASCII text\n')
    })
  })

  describe('keeps nothing for the next run', () => {
    it('of files, shared memory, sockets and processes', async () => {
      const leave = await python(`
import os, socket, ctypes
for path in ('/tmp/left', '/dev/shm/left', '/home/baponi/left'): open(path, 'w').write('x')
socket.socket(socket.AF_UNIX).bind('\\0left')
print(ctypes.CDLL(None).shmget(7777, 4096, 0o1666) >= 0)
`)
      expect(leave.stdout.toString()).toBe('True\n')
      const find = await python(`
import os, ctypes
print(os.listdir('/tmp'), os.listdir('/dev/shm'), os.listdir('/home/baponi'), ctypes.CDLL(None).shmget(7777, 4096, 0o666))
print(open('/proc/net/unix').read().count('left'))
`)
      expect(find.stdout.toString()).toBe('[] [] [] -1\n0\n')
    })
    it('in the guest itself: descriptors, children and memory stay constant', async () => {
      const childrenOf = (pid: number) => readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim()
      const jailer = Number(childrenOf(slot.pid))
      const measure = () => ({
        descriptors: readdirSync(`/proc/${slot.pid}/fd`).length,
        jailerDescriptors: readdirSync(`/proc/${jailer}/fd`).length,
        children: childrenOf(slot.pid),
        jailerChildren: childrenOf(jailer),
        residentKb: Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${slot.pid}/status`, 'utf8'))?.[1]),
      })
      const secret = 'a secret of the run before'
      // The search below finds this while a run executes; otherwise it would prove nothing.
      const run = slot.prepare({ args: ['true'], env: { SECRET: secret } })
      await slot.expect(kinds.waiting)
      if (build === 'static') expect(memoryOf(slot.pid).includes(secret)).toBe(true)
      slot.send(frame(kinds.go, run))
      await slot.finish(run)
      for (let run = 0; run < 20; run++) await slot.run({ args: ['true'] })
      const before = measure()
      for (let run = 0; run < (build === 'static' ? 400 : 60); run++)
        expect(await slot.run({ args: ['true'], env: { SECRET: secret }, code: secret.repeat(1000) })).toMatchObject({
          how: 'exited',
          value: 0,
        })
      const after = measure()
      expect({ ...after, residentKb: 0 }).toEqual({
        ...before,
        residentKb: 0,
        children: String(jailer),
        jailerChildren: '',
      })
      // Sanitizers keep freed memory in quarantine for a while.
      expect(after.residentKb - before.residentKb).toBeLessThan(build === 'static' ? 128 : 65536)
      if (build === 'static') for (const pid of [slot.pid, jailer]) expect(memoryOf(pid).includes(secret)).toBe(false)
    })
  })

  it('forwards exactly the granted credit, and still obeys KILL', async () => {
    const run = slot.prepare({ args: ['yes'], credit: 100_000 })
    await slot.expect(kinds.waiting)
    slot.send(frame(kinds.go, run))
    let bytes = 0
    while (bytes < 100_000) bytes += (await slot.expect(kinds.stdout)).payload.length
    expect(bytes).toBe(100_000)
    // One KILL ends the jail; one that finds it dead drops the output without credit.
    const killing = setInterval(() => slot.send(frame(kinds.kill, run)), 20)
    const outcome = await slot.finish(run, false).finally(() => clearInterval(killing))
    expect(outcome).toMatchObject({ how: 'killed', stdout: Buffer.alloc(0) })
    expect(await slot.run({ args: ['true'] })).toMatchObject({ how: 'exited', value: 0 })
  })

  it('forwards images separately from output, within their own credit', async () => {
    const write = 'import os; print(os.write(60, b"i" * 40_000)); os.write(60, b"j" * 40_000)'
    const run = slot.prepare({ args: ['python3', '-c', write], imageCredit: 50_000 })
    await slot.expect(kinds.waiting)
    slot.send(frame(kinds.go, run))
    const images: Buffer[] = []
    let output = ''
    while (output === '' || Buffer.concat(images).length < 50_000) {
      const next = await slot.next()
      if (next?.kind === kinds.images) images.push(next.payload)
      else if (next?.kind === kinds.stdout) output += next.payload.toString()
      else throw new Error(`frame ${next?.kind} before all images had credit`)
    }
    const more = Buffer.alloc(4)
    more.writeUInt32LE(30_000)
    slot.send(frame(kinds.imageCredit, run, more))
    const { how, frames } = await slot.finish(run)
    for (const { kind, payload } of frames) if (kind === kinds.images) images.push(payload)
    expect([how, output]).toEqual(['exited', '40000\n'])
    expect(Buffer.concat(images).toString()).toBe('i'.repeat(40_000) + 'j'.repeat(40_000))
  })
})

/** All writable memory of a process, as root on this host reads it. */
function memoryOf(pid: number): Buffer {
  const maps = readFileSync(`/proc/${pid}/maps`, 'utf8')
    .split('\n')
    .filter((line) => / rw/.test(line))
  const parts = maps.map((line) => {
    const [from, to] = line
      .split(' ')[0]!
      .split('-')
      .map((address) => Number.parseInt(address, 16)) as [number, number]
    return execFileSync(
      'dd',
      [`if=/proc/${pid}/mem`, 'bs=4096', `skip=${from / 4096}`, `count=${(to - from) / 4096}`, 'status=none'],
      { maxBuffer: 1 << 26 },
    )
  })
  return Buffer.concat(parts)
}
