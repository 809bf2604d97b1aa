/** Promise 5: a run cannot reach or forge the channel between the guest and the runner. */
import { spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeFrame, FrameDecoder, fromGuest, toGuest } from '../../src/engine/slots/guest-channel.ts'
import { plain } from '../support/attacks.ts'
import { isAlive, know } from '../support/processes.ts'
import { Bench, type BenchSlot, benchMissing, python, runtimesHere } from '../support/slot-bench.ts'

/** Everything one process can do to another, tried on the process in the first argument. */
const molest = `
import ctypes, errno, os, resource, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])

def call(number, *words):
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(word) for word in words]) < 0:
        raise OSError(ctypes.get_errno(), '')

def through_pidfd():
    signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGCONT)

attempts = {
    'SIGCONT': lambda: os.kill(pid, signal.SIGCONT),
    'SIGSTOP': lambda: (os.kill(pid, signal.SIGSTOP), os.kill(pid, signal.SIGCONT)),
    'pidfd': through_pidfd,
    'memory': lambda: open(f'/proc/{pid}/mem', 'rb').close(),
    'memory to write': lambda: open(f'/proc/{pid}/mem', 'wb').close(),
    'maps': lambda: open(f'/proc/{pid}/maps').read(),
    'environment': lambda: open(f'/proc/{pid}/environ').read(),
    'descriptors': lambda: os.listdir(f'/proc/{pid}/fd'),
    'a descriptor': lambda: os.readlink(f'/proc/{pid}/fd/0'),
    'open a descriptor': lambda: os.close(os.open(f'/proc/{pid}/fd/0', os.O_RDONLY | os.O_NONBLOCK)),
    'limits': lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, resource.prlimit(pid, resource.RLIMIT_NOFILE)),
    'priority': lambda: os.setpriority(os.PRIO_PROCESS, pid, 5),
    'affinity': lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
    'scheduler': lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
    'io priority': lambda: call(251, 1, pid, 2 << 13 | 7),
    'score': lambda: open(f'/proc/{pid}/oom_score_adj', 'w').write('1000'),
    'name': lambda: open(f'/proc/{pid}/comm', 'w').write('taken'),
    'process group': lambda: os.setpgid(pid, pid),
    'ptrace': lambda: call(101, 0x4206, pid, 0, 0),
    'process_vm_readv': lambda: call(310, pid, 0, 0, 0, 0, 0),
    'pidfd_getfd': lambda: call(438, os.pidfd_open(pid), 0, 0),
    'setns': lambda: call(308, os.pidfd_open(pid), 0x40000000),
    'SIGKILL': lambda: os.kill(pid, signal.SIGKILL),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print(name, 'ok', sep='=')
    except OSError as error:
        print(name, errno.errorcode.get(error.errno), sep='=')
`

const answersOf = (printed: string) =>
  Object.fromEntries(
    printed
      .trim()
      .split('\n')
      .map((line) => line.split('=') as [string, string]),
  )

/** Prints guest frames on every descriptor, then exits with its own code. */
const forge = `
import os, sys
frames = bytes.fromhex(sys.argv[1])
for _ in range(50):
    os.write(1, frames)
    os.write(2, frames)
for fd in range(3, 64):
    try:
        os.write(fd, frames)
        if fd != 60: # Of its own: what it takes for images.
            print('wrote to', fd)
    except OSError:
        pass
sys.exit(7)
`

/** Sends its output pipe on an endless journey: in the buffer of a socket that is sent through itself. */
const hideDescriptors = `
import array, os, socket
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for _ in range(20):
    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0, 1, 2, a.fileno(), b.fileno()]))])
print('hidden')
`

describe.skipIf(benchMissing !== undefined).each(runtimesHere)('a run in a slot of %s', (runtime) => {
  let bench: Bench
  let slot: BenchSlot
  beforeAll(async () => {
    bench = await Bench.open(runtime)
    slot = await bench.slot({ timeoutMs: 8_000 })
  })
  afterAll(() => bench?.close())

  it('starts with its three standard descriptors, one for images, and no other', async () => {
    const list =
      'import os; print({fd: os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")})'
    const { stdout } = await slot.run({ argv: ['/usr/bin/python3', '-c', list] })
    expect(stdout).toBe("{'0': '/dev/null', '1': 'pipe', '2': 'pipe', '60': 'pipe'}\n")
  })

  it('cannot affect its init, the only visible process of the guest', async () => {
    const victim = spawn('sleep', ['60'], { stdio: ['ignore', 'pipe', 'pipe'], detached: true })
    const known = know(victim.pid ?? 0)
    try {
      const plainly = answersOf((await plain('/usr/bin/python3', '-c', molest, `${victim.pid}`)).stdout)
      // A foreign process group is refused to root as well, and a name only the threads of a process may write.
      for (const [name, answer] of Object.entries(plainly))
        if (!['process group', 'name'].includes(name)) expect([name, answer]).toEqual([name, 'ok'])
      await expect.poll(() => isAlive(known)).toBe(false)
    } finally {
      victim.kill('SIGKILL')
    }
    const within = answersOf((await slot.run(python(molest, '1'))).stdout)
    expect(Object.keys(within)).toHaveLength(23)
    for (const [name, answer] of Object.entries(within))
      expect([name, answer]).toEqual([
        name,
        expect.stringMatching(name === 'process group' ? /ESRCH/ : /EPERM|EACCES|EINVAL/),
      ])
    expect(await slot.state()).toMatchObject({ healthy: true })
  })

  it('cannot end a run, its own or the next, with bytes that look like frames', async () => {
    const frames = [1, 2, 3, 4, 5, 6].flatMap((run) => [
      encodeFrame(fromGuest.exited, run, Buffer.from([0, 0, 0, 0, 0])),
      encodeFrame(fromGuest.waiting, run, Buffer.from([2, 0, 0, 0])),
      encodeFrame(toGuest.kill, run),
      encodeFrame(toGuest.go, run),
      encodeFrame(99, run, Buffer.alloc(8)),
    ])
    const bytes = Buffer.concat(frames)
    // On the channel itself those bytes do have an effect.
    const seen: number[] = []
    new FrameDecoder().push(encodeFrame(fromGuest.exited, 1, Buffer.from([0, 0, 0, 0, 0])), ({ kind }) =>
      seen.push(kind),
    )
    expect(seen).toEqual([fromGuest.exited])

    const run = slot.start(python(forge, bytes.toString('hex')))
    const outcome = await run.ended
    expect(outcome.ending).toEqual({ kind: 'exited', code: 7 })
    expect(outcome.outputBytes).toEqual({ stdout: 50 * bytes.length, stderr: 50 * bytes.length })
    expect(Buffer.from(outcome.stdout)).toEqual(Buffer.from(Buffer.concat(Array(50).fill(bytes)).toString('utf8')))
    expect(await slot.bash('exit 3')).toMatchObject({ ending: { kind: 'exited', code: 3 } })
  })

  it('affects no other run with what it does to its end of the pipes', async () => {
    const spoil = `
import fcntl, os, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
for fd in (1, 2):
    reader = os.open(f'/proc/self/fd/{fd}', os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_DIRECT)
    fcntl.fcntl(fd, 1031, 4096)
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        for _ in range(10000):
            os.write(fd, b'x' * 3000)
    except BlockingIOError:
        pass
    os.close(fd)
os._exit(5)
`
    for (let i = 0; i < 3; i++) expect((await slot.python(spoil)).ending).toEqual({ kind: 'exited', code: 5 })
    expect(await slot.bash('echo fine')).toMatchObject({ stdout: 'fine\n', ending: { kind: 'exited', code: 0 } })
  })

  it('uses up no descriptor of the guest, wherever it hid those of its output', async () => {
    const held = () => readdirSync(`/proc/${slot.pid}/fd`).length
    const before = held()
    for (let i = 0; i < 10; i++)
      expect(await slot.python(hideDescriptors)).toMatchObject({
        stdout: 'hidden\n',
        ending: { kind: 'exited', code: 0 },
      })
    expect(held()).toBe(before)
  })

  it('kills only itself when it signals every process', async () => {
    // The first reaches every process except the caller, the second its process group.
    const all = `
import os, signal, subprocess
children = [subprocess.Popen(['sleep', '60'], start_new_session=True) for _ in range(3)]
os.kill(-1, signal.SIGKILL)
print([child.wait() for child in children], flush=True)
os.killpg(0, signal.SIGKILL)
`
    expect(await slot.python(all)).toMatchObject({
      stdout: '[-9, -9, -9]\n',
      ending: { kind: 'signaled', signal: 'KILL' },
    })
    expect(isAlive(slot.guest)).toBe(true)
    expect(await slot.state()).toMatchObject({ healthy: true })
  })
})
