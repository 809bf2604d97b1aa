/** Promise 11: a run shares nothing with a run in another slot, and no link of it leads out. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { plain } from '../support/attacks.ts'
import { Bench, type BenchSlot, benchMissing, python, runtimesHere } from '../support/slot-bench.ts'

/** Creates objects that outlive a process under a guessable key, open to everyone, and prints that. */
const share = `
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
key = int(sys.argv[1])
made = [libc.shmget(key, 4096, 0o1666), libc.semget(key, 1, 0o1666), libc.msgget(key, 0o1666)]
assert min(made) >= 0, made
print('shared', flush=True)
time.sleep(30)
`

/** Searches for them by key, and counts what the kernel lists. */
const find = `
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
key = int(sys.argv[1])
for name, call in (('shm', lambda: libc.shmget(key, 0, 0)), ('sem', lambda: libc.semget(key, 0, 0)), ('msg', lambda: libc.msgget(key, 0))):
    print(name, 'found' if call() >= 0 else errno.errorcode[ctypes.get_errno()])
    print('listed', any(line.split()[0] == str(key) for line in list(open('/proc/sysvipc/' + name))[1:]))
`

const findings = (answer: string) =>
  ['shm', 'sem', 'msg'].flatMap((name) => [`${name} ${answer}`, `listed ${answer === 'found' ? 'True' : 'False'}`])

/** Takes, gives away and writes the ids of others. */
const takeIds = `
import errno, os, socket, struct, sys, tempfile
for id in map(int, sys.argv[1:]):
    def attempt(name, work):
        child = os.fork()
        if child == 0:
            try: work(); print(name, 'done', flush=True)
            except OSError as error: print(name, errno.errorcode[error.errno], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    path = tempfile.mkstemp()[1]
    def send():
        a, b = socket.socketpair()
        a.sendmsg([b'x'], [(socket.SOL_SOCKET, 2, struct.pack('iII', os.getpid(), id, id))])
    attempt('setuid', lambda: os.setresuid(id, id, id))
    attempt('setgid', lambda: os.setresgid(id, id, id))
    attempt('chown', lambda: os.chown(path, id, id))
    attempt('send', send)
    os.unlink(path)
`

/** Links what it can read, and what it cannot, to every place that it can write to. */
const linkOut = `
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, FOLLOW, EMPTY = -100, 0x400, 0x1000
for source in sys.argv[1].split(':'):
    for place in sys.argv[2].split(':'):
        target = os.path.join(place, 'linked').encode()
        tries = [(AT_FDCWD, source.encode(), 0), (AT_FDCWD, source.encode(), FOLLOW)]
        try:
            fd = os.open(source, os.O_PATH)
            tries += [(fd, b'', EMPTY), (AT_FDCWD, b'/proc/self/fd/%d' % fd, FOLLOW)]
        except OSError: pass
        for dirfd, path, flags in tries:
            if libc.linkat(dirfd, path, AT_FDCWD, target, flags) == 0:
                print('LINKED', source, place); os.unlink(target)
            elif os.path.lexists(target): print('LEFT', source, place)
print('tried', flush=True)
`

const sources = [
  ...['/usr/bin/true', '/etc/passwd', '/proc/self/exe', '/proc/self/status', '/proc/1/root/etc/shadow', '/dev/null'],
  ...['/opt/glovebox/bin/node', '/run/glovebox/main.py', '/proc/self/ns/net'],
]
const places = ['/tmp', '/dev/shm', '/home/baponi']

describe.skipIf(benchMissing !== undefined).each(runtimesHere)('a run in a slot of %s', (runtime) => {
  let bench: Bench
  let slot: BenchSlot
  let other: BenchSlot
  beforeAll(async () => {
    bench = await Bench.open(runtime)
    slot = await bench.slot()
    other = await bench.slot()
  })
  afterAll(() => bench?.close())

  it('shares no memory, semaphore or queue with a run in another slot, or with the host', async () => {
    const key = `${0x61_00_00_00 + process.pid}`
    // Without isolation two processes share them; in a namespace of their own, so that nothing remains.
    const both = 'exec 3< <(python3 -c "$0" "$1"); read -u 3 _; python3 -c "$2" "$1"; kill $!'
    const without = await plain('unshare', '--ipc', 'bash', '-c', both, share, key, find)
    expect(without.stdout).toContain(findings('found').join('\n'))

    const busy = other.start(python(share, key))
    await busy.prints('shared')
    const seen = await slot.run(python(find, key))
    expect(seen.stdout.trim().split('\n')).toEqual(findings('ENOENT'))
    // The host has none either, so that what is created inside is not found here.
    expect((await plain('/usr/bin/python3', '-c', find, key)).stdout.trim().split('\n')).toEqual(findings('ENOENT'))
    busy.stop()
    await busy.ended
  })

  it('cannot take, give away or forge the ids of another slot, of its own guest, or of the host', async () => {
    const firstOf = ({ pid }: BenchSlot) =>
      Number(/^\s*0\s+(\d+)\s+65536/.exec(readFileSync(`/proc/${pid}/uid_map`, 'utf8'))?.[1])
    const ids = [firstOf(other), firstOf(other) + 1000, firstOf(slot) + 1000, 0, 61_000].map(String)
    const without = await plain('/usr/bin/python3', '-c', takeIds, ...ids)
    expect(without.stdout.trim().split('\n')).toEqual(
      ids.flatMap(() => ['setuid done', 'setgid done', 'chown done', 'send done']),
    )
    const within = await slot.run(python(takeIds, ...ids))
    expect(within.stdout.trim().split('\n')).toHaveLength(4 * ids.length)
    expect(within.stdout).not.toContain('done')
  })

  it('makes no hard link to anything but its own files, anywhere', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'glovebox-links-'))
    writeFileSync(join(directory, 'file'), '')
    const without = await plain('/usr/bin/python3', '-c', linkOut, join(directory, 'file'), directory)
    expect(without.stdout).toContain('LINKED')
    rmSync(directory, { recursive: true })
    const within = await slot.run(python(linkOut, sources.join(':'), places.join(':')))
    expect(within).toMatchObject({ stdout: 'tried\n', ending: { kind: 'exited', code: 0 } })
  })

  it('resolves its own symbolic links within its own root', async () => {
    const code = `
import os
for n, target in enumerate(['/etc/shadow', '../' * 20 + 'etc/shadow', '/proc/1/root/etc/shadow', '/proc/1/cwd/etc/shadow', '/image/etc/shadow', '/dock', '/proc/self/fd/3']):
    os.symlink(target, f'link{n}')
    try: print(target, open(f'link{n}').read())
    except OSError as error: print(type(error).__name__)
print(os.path.realpath('/proc/self/root'), os.stat('/proc/self/root/..').st_ino == os.stat('/').st_ino)
`
    const { stdout } = await slot.python(code)
    const lines = stdout.trim().split('\n')
    expect(lines.pop()).toBe('/ True')
    expect(lines).toHaveLength(7)
    for (const line of lines) expect(line).toMatch(/^(FileNotFoundError|PermissionError)$/)
    expect((await plain('sh', '-c', 'ls /etc/shadow')).code).toBe(0)
  })
})
