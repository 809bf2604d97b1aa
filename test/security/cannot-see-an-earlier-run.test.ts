/** Promise 6: a run sees nothing of an earlier run in the same slot. */
import { randomBytes } from 'node:crypto'
import { closeSync, openSync, readFileSync, readSync } from 'node:fs'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { plain } from '../support/attacks.ts'
import { Bench, type BenchSlot, benchMissing, python, runtimesHere } from '../support/slot-bench.ts'

/** Leaves a marker in every place that outlives a process. The marker comes in the environment. */
const leave = `
import ctypes, os, socket, subprocess, sys
word = os.environ['LEFT']
libc = ctypes.CDLL(None, use_errno=True)
for at in os.environ['PLACES'].split(':'):
    try:
        open(os.path.join(at, word), 'w').write(word)
    except OSError:
        pass
key = int(sys.argv[1])
shared = libc.shmget(key, 4096, 0o1666)
libc.shmat.restype = ctypes.c_void_p
ctypes.memmove(libc.shmat(shared, None, 0), word.encode(), len(word))
libc.semget(key, 1, 0o1666)
queue = libc.msgget(key, 0o1666)
libc.msgsnd(queue, ctypes.create_string_buffer(b'\\1' + b'\\0' * 7 + word.encode()), len(word), 0)
one = socket.socket(socket.AF_UNIX)
one.bind('\\0' + word)
one.listen()
two = socket.socket()
two.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
two.bind(('127.0.0.1', key % 20000 + 10000))
two.listen()
os.umask(0)
os.set_inheritable(one.fileno(), True)
subprocess.Popen(['/bin/sh', '-c', 'sleep 60', word], start_new_session=True, close_fds=False)
kept = bytearray(word.encode() * 100000)
print(word, file=sys.stderr)
print('left', flush=True)
`

/** Searches for it. Prints what it finds. */
const search = `
import ctypes, os, socket, sys
word, key = sys.argv[2], int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
found = []
for root, folders, files in (entry for place in sys.argv[3:] for entry in os.walk(place)):
    folders[:] = [name for name in folders if os.path.join(root, name) not in ('/usr', '/proc', '/sys')]
    for name in files:
        path = os.path.join(root, name)
        if word in name:
            found.append(path)
        elif os.path.isfile(path) and not os.path.islink(path) and '/dev/' not in path:
            try:
                if word.encode() in open(path, 'rb').read(1 << 20) and path != sys.argv[0]:
                    found.append('in ' + path)
            except OSError:
                pass
if libc.shmget(key, 0, 0) >= 0: found.append('shared memory')
if libc.semget(key, 0, 0) >= 0: found.append('semaphore')
if libc.msgget(key, 0) >= 0: found.append('message queue')
for kind in ('shm', 'sem', 'msg'):
    if len(open('/proc/sysvipc/' + kind).readlines()) > 1: found.append(kind)
try:
    socket.socket(socket.AF_UNIX).connect('\\0' + word); found.append('abstract socket')
except OSError: pass
try:
    socket.create_connection(('127.0.0.1', key % 20000 + 10000), 2); found.append('port')
except OSError: pass
for name in os.listdir('/proc'):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        try:
            if word in open(f'/proc/{name}/cmdline').read() + open(f'/proc/{name}/environ').read():
                found.append('process')
        except OSError: pass
for path in ('/proc/net/tcp', '/proc/net/unix'):
    if len(open(path).readlines()) > 1: found.append(path)
if 'LEFT' in os.environ: found.append('variable')
if libc.umask(0) != 0o22: found.append('umask')
if os.readlink('/proc/self/fd/0') != '/dev/null': found.append('input')
print(sorted(found))
`

/** Whether a marker is anywhere in the writable memory of a process. */
function isInMemory(pid: number, word: string): boolean {
  const memory = openSync(`/proc/${pid}/mem`, 'r')
  try {
    return writableMaps(pid).some(([from, to]) => {
      const bytes = Buffer.alloc(to - from)
      try {
        readSync(memory, bytes, 0, bytes.length, from)
      } catch {
        return false // a guard page, or gone meanwhile
      }
      return bytes.includes(word)
    })
  } finally {
    closeSync(memory)
  }
}

const writableMaps = (pid: number): [number, number][] =>
  [...readFileSync(`/proc/${pid}/maps`, 'latin1').matchAll(/^([0-9a-f]+)-([0-9a-f]+) rw/gm)].map(([, from, to]) => [
    Number.parseInt(from ?? '', 16),
    Number.parseInt(to ?? '', 16),
  ])

const mib = 1024 * 1024

describe.skipIf(benchMissing !== undefined).each(runtimesHere)('a run in a slot of %s', (runtime) => {
  let bench: Bench
  let slot: BenchSlot
  let word: string
  let key: string

  const left = () => ({
    LEFT: word,
    PLACES: '/tmp:/dev/shm:.:/run:/var/tmp:/dev:/dev/pts:/dev/mqueue:/run/glovebox:/',
  })

  beforeAll(async () => {
    bench = await Bench.open(runtime)
    slot = await bench.slot()
  })
  beforeEach(() => {
    word = `left-${randomBytes(8).toString('hex')}`
    key = `${0x10000000 + randomBytes(3).readUIntBE(0, 3)}`
  })
  afterAll(() => bench?.close())

  it('finds nothing of the previous run: no file, memory, queue, socket, port, process, variable or mask', async () => {
    // In separate namespaces of this host, one after the other in the same one: everything is found.
    const apart = ['--mount', '--propagation', 'private', '--ipc', '--net', '--pid', '--fork', '--kill-child']
    const both = `
mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm && mkdir /tmp/home && cd /tmp/home && ip link set lo up 2>/dev/null
export LEFT=${word} PLACES=/tmp:/dev/shm:.; umask 022
/usr/bin/python3 -c "$0" ${key} >/tmp/out 2>&1 </dev/null &
wait $!; /usr/bin/python3 -c "$1" ${key} ${word} /tmp /dev/shm </dev/null`
    const plainly = (await plain('unshare', ...apart, '--mount-proc', 'sh', '-c', both, leave, search)).stdout
    for (const thing of ['shared memory', 'semaphore', 'message queue', 'abstract socket', 'process', 'variable'])
      expect(plainly).toContain(thing)
    for (const path of [`/tmp/${word}`, `/dev/shm/${word}`, `/tmp/home/${word}`]) expect(plainly).toContain(path)

    expect(await slot.run({ ...python(leave, key), env: left() })).toMatchObject({ stdout: 'left\n' })
    expect(await slot.python(search, key, word, '/')).toMatchObject({
      stdout: '[]\n',
      ending: { kind: 'exited', code: 0 },
    })
  })

  it('finds nothing of a run that was killed, ran out of memory, or was cancelled', async () => {
    const ends = { 'os.kill(os.getpid(), 9)': 'signaled', 'while True: kept.extend(b"x" * 1000000)': 'out_of_memory' }
    for (const [end, kind] of Object.entries(ends)) {
      const outcome = await slot.run({ ...python(`${leave}\n${end}`, key), env: left() })
      expect(outcome).toMatchObject({ stdout: 'left\n', ending: { kind } })
      expect((await slot.python(search, key, word, '/')).stdout).toBe('[]\n')
    }
    const run = slot.start({ ...python(`${leave}\nimport time; time.sleep(60)`, key), env: left() })
    await run.prints('left')
    run.stop()
    expect((await run.ended).ending).toEqual({ kind: 'cancelled' })
    expect((await slot.python(search, key, word, '/')).stdout).toBe('[]\n')
  })

  it('starts with the process numbers, the times and the limits of a first run', async () => {
    const facts = 'echo $$ $PPID; ulimit -a; stat -c "%a %u %g %h" . /tmp /dev/shm; df -k --output=used . /tmp; tty; id'
    const first = await (await bench.slot()).bash(facts)
    expect((await slot.bash(facts)).stdout).toBe(first.stdout)
    expect(first.stdout).toMatch(/^2 1\n/)
  })

  it('leaves nothing of its code, input, variables or output in the memory of the guest', async () => {
    const [code, input, variable] = [`code-${word}`, `input-${word}`, `variable-${word}`]
    const run = slot.start({
      ...python(
        `# ${code}\nimport os, sys, time\nprint(os.environ['V'][::-1], sys.stdin.read()[::-1])\nprint('there')\ntime.sleep(60)`,
      ),
      stdin: Buffer.from(input),
      env: { V: variable },
    })
    await run.prints('there')
    // While it runs, the guest does hold its input: so the search works.
    expect(isInMemory(slot.pid, code)).toBe(true)
    run.stop()
    await run.ended
    await slot.bash('true') // memory is freed between runs
    const backwards = (text: string) => [...text].reverse().join('')
    for (const secret of [code, input, variable, backwards(variable), backwards(input)])
      expect([secret, isInMemory(slot.pid, secret)]).toEqual([secret, false])
  })

  it('has all of its memory, whatever the previous run filled', async () => {
    const limits = { memoryBytes: 128 * mib, tmpBytes: 128 * mib, fileBytes: 128 * mib }
    const tight = await bench.slot(limits)
    const fill = "open('/tmp/fill', 'wb').write(b'x' * (45 << 20)); print('filled', flush=True)"
    for (let i = 0; i < 5; i++)
      expect(await tight.python(fill)).toMatchObject({
        stdout: 'filled\n',
        ending: { kind: 'exited', code: 0 },
        oomKills: 0,
      })
    // The kernel frees some kinds of memory late; then there is no next run in that slot.
    const keep = `
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
ctypes.memset(libc.shmat(libc.shmget(0, 90 << 20, 0o600), None, 0), 1, 90 << 20)
print('filled', flush=True)
`
    expect(await tight.python(keep)).toMatchObject({ stdout: 'filled\n', ending: { kind: 'exited', code: 0 } })
    expect((await tight.state()).unhealthyReason).toBe('the memory of its last run was not free again')
    await expect(tight.bash('true')).rejects.toThrow('is of no use any more')
    await tight.destroy()
  })
})
