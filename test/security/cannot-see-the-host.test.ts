/** Promise 1: a run cannot see the host. */
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { networkInterfaces, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fixedEnv } from '../../src/engine/jails/languages.ts'
import { plain } from '../support/attacks.ts'
import { lookAround, lookAroundPath, machineFacts, type Seen, shownOfProc, shownOfSys } from '../support/look-around.ts'
import { Bench, type BenchSlot, benchMissing, python, runtimesHere } from '../support/slot-bench.ts'

const canary = 'glovebox-canary-5f1c'

/** Names that say which program of the host or of another slot is started; shared files would reveal it. */
const watchUsr = `
import ctypes, fcntl, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(os.O_NONBLOCK)
assert libc.inotify_add_watch(fd, b'/usr/bin', 0x20) > 0
held = open('/usr/bin/base32')
fcntl.flock(held, fcntl.LOCK_EX)
print('ready', flush=True)
time.sleep(1.5)
names = set()
try:
    while True:
        events = os.read(fd, 65536)
        at = 0
        while at < len(events):
            length = struct.unpack_from('iIII', events, at)[3]
            names.add(events[at + 16:at + 16 + length].rstrip(b'\\0').decode())
            at += 16 + length
except BlockingIOError:
    pass
print('saw', *sorted(names))
`

/** Locks each path; prints which are free, and keeps them. */
const lock = `
import fcntl, os, sys, time
held = []
for path in sys.argv[1:]:
    held.append(os.open(path, os.O_RDONLY))
    try:
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        print(path, 'free')
    except BlockingIOError: print(path, 'held')
print('ready', flush=True)
time.sleep(20)
`

/** Of the machine and of each slot. */
const lockable = [
  ...['/', '/usr', '/usr/bin/env', '/usr/lib', '/etc', '/etc/passwd', '/opt', '/opt/glovebox/bin', '/home', '/run'],
  ...['/opt/glovebox/bin/node', '/opt/glovebox/lib/prelude.cjs', '/opt/glovebox/lib/python-zygote.so', '/var'],
  ...['/sys', '/proc', '/proc/sys', '/proc/version', '/dev', '/dev/null', '/dev/zero', '/dev/full', '/dev/random'],
  '/dev/urandom',
]

/** Changes the timestamps of files that every process on the host uses. */
const touchDevices = `
import os
for name in ['null', 'zero', 'full', 'random', 'urandom', 'tty', '../usr/bin/true', '../etc/passwd']:
    try:
        os.utime('/dev/' + name)
        print(name, 'touched')
    except OSError as error:
        print(name, os.strerror(error.errno))
`

describe.skipIf(benchMissing !== undefined).each(runtimesHere)('a run in a slot of %s', (runtime) => {
  let bench: Bench
  let slot: BenchSlot
  let other: BenchSlot
  let directory: string
  const local = `/usr/local/etc/${canary}`
  const servers: Server[] = []
  let ports: number[]
  let within: Seen
  let without: Seen

  const listen = async (where: { host: string } | { path: string }): Promise<number> => {
    const server = createServer((socket) => socket.end())
    servers.push(server)
    server.listen('host' in where ? { ...where, port: 0 } : where)
    await once(server, 'listening')
    const address = server.address()
    return typeof address === 'object' && address !== null ? address.port : 0
  }

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'glovebox-host-'))
    writeFileSync(join(directory, 'glovebox.db'), `secret ${canary}`)
    mkdirSync('/usr/local/etc', { recursive: true })
    writeFileSync(local, `secret ${canary}`)
    process.env.GLOVEBOX_CANARY = canary // of this process, and so of the bench below it
    bench = await Bench.open(runtime)
    slot = await bench.slot()
    other = await bench.slot()
    ports = [await listen({ host: '127.0.0.1' }), await listen({ host: '::1' })]
    const abstract = `\0${canary}-${process.pid}-${runtime}`
    await listen({ path: abstract })
    await listen({ path: join(directory, 'socket') })
    const ownAddresses = Object.values(networkInterfaces())
      .flatMap((addresses) => addresses ?? [])
      .filter(({ internal, address }) => !internal && !address.startsWith('fe80'))
      .map(({ address }) => [address, ports[0]])
    const asked = {
      canary,
      pids: [process.pid, bench.facts.pid, slot.pid, other.pid],
      roots: ['/'],
      facts: machineFacts,
      files: [
        local,
        join(directory, 'glovebox.db'),
        bench.facts.stateDir,
        '/etc/shadow',
        '/root',
        '/proc/1/root/etc/shadow',
      ],
      ports,
      addresses: [...ownAddresses, ['169.254.169.254', 80], ['192.0.2.1', 80], ['2001:db8::1', 80]],
      datagrams: ['192.0.2.1', '255.255.255.255', '224.0.0.1'],
      unix: [`@${abstract.slice(1)}`, join(directory, 'socket')],
      names: ['example.com', 'localhost'],
      init: 1,
      jailed: true,
    }
    // Outside, only files of this test are searched; reading all of /proc as root has side effects.
    const less = {
      ...asked,
      roots: [directory],
      addresses: ownAddresses,
      datagrams: [],
      names: [],
      init: process.pid,
      jailed: false,
    }
    without = JSON.parse((await plain('/usr/bin/python3', lookAroundPath, JSON.stringify(less))).stdout)
    const outcome = await slot.run(python(lookAround, JSON.stringify(asked)))
    if (outcome.ending.kind !== 'exited') throw new Error(JSON.stringify(outcome))
    within = JSON.parse(outcome.stdout)
  })
  afterAll(async () => {
    for (const server of servers) server.close()
    rmSync(directory, { recursive: true, force: true })
    rmSync(local, { force: true })
    delete process.env.GLOVEBOX_CANARY
    await bench?.close()
  })

  it('sees only its own processes', () => {
    expect(without.pids).toContain(process.pid)
    expect(Object.values(without.known_pids)).toEqual(Array(4).fill('there'))
    expect(within.pids).toEqual([1, 2])
    expect(Object.values(within.known_pids)).toEqual(Array(4).fill('No such process'))
  })

  it('finds no environment but its own', () => {
    expect(without.environ_of_known[bench.facts.pid]).toBe(1)
    expect(Object.values(within.environ_of_known)).toEqual(Array(4).fill('No such file or directory'))
    expect(Object.keys(within.environment).sort()).toEqual(Object.keys(fixedEnv).sort())
  })

  it('cannot look into its init, which is a copy of the guest', () => {
    expect([without.init.environ, without.links_of_init.root]).toEqual(['read', 'read'])
    for (const answer of [...Object.values(within.init), ...Object.values(within.links_of_init)])
      expect(answer).toBe('Permission denied')
    expect(within.descriptors_of_init).toBe('Permission denied')
  })

  it('finds no file of the host, by name or by content', () => {
    expect(without.canary_files).toContain(join(directory, 'glovebox.db'))
    for (const path of [local, join(directory, 'glovebox.db')]) expect(without.known_files[path]).toBeGreaterThan(0)
    expect(within.canary_files).toEqual([])
    const { '/proc/1/root/etc/shadow': throughInit, ...named } = within.known_files
    expect(throughInit).toBe('Permission denied')
    for (const answer of Object.values(named)) expect(answer).toBe('No such file or directory')
  })

  it('finds a root and a configuration that were generated for it', () => {
    expect(within.root).toEqual(
      expect.arrayContaining(['bin', 'dev', 'etc', 'home', 'opt', 'proc', 'run', 'sys', 'tmp', 'usr', 'var']),
    )
    for (const name of ['boot', 'root', 'srv', 'media', 'image', 'scratch', 'guest', 'dock'])
      expect(within.root).not.toContain(name)
    for (const name of ['shadow', 'gshadow', 'ssh', 'sudoers', 'machine-id', 'fstab', 'crontab', 'environment'])
      expect(within.etc).not.toContain(name)
  })

  it('reads from /proc and /sys only its own state and the listed general facts', () => {
    expect(shownOfProc).toEqual(expect.arrayContaining(within.proc))
    expect(within.sys).toEqual(shownOfSys)
    expect(within.dev).toEqual([
      'fd',
      'full',
      'null',
      'ptmx',
      'pts',
      'random',
      'shm',
      'stderr',
      'stdin',
      'stdout',
      'tty',
      'urandom',
      'zero',
    ])
    expect(within.cgroup).not.toContain(bench.facts.instanceId)
    expect(within.cgroup).not.toContain(slot.id)
    for (const line of within.cgroup.trim().split('\n')) expect(line).toMatch(/^\d+:[^:]*:\/$/)
  })

  it('reaches no server on this host: on loopback, on its addresses, by UNIX sockets', () => {
    const [first = 0, second = 0] = ports
    expect([without.tcp[first], without.tcp6[second]]).toEqual(['connected', 'connected'])
    expect(Object.values(without.unix)).toEqual(['connected', 'connected'])
    expect(Object.values(within.tcp)).toEqual(['Connection refused', 'Connection refused'])
    expect(Object.values(within.tcp6)).toEqual(['Connection refused', 'Connection refused'])
    expect(Object.values(within.unix)).toEqual(['Connection refused', 'No such file or directory'])
    expect(within.listening).toEqual([])
    expect(within.unix_names).toEqual([])
  })

  it('has no network except loopback, and gets an immediate error', () => {
    // Refused by the host itself: a packet of a plain process gets that far.
    for (const answer of Object.values(without.addresses)) expect(answer).toBe('Connection refused')
    for (const answer of [...Object.values(within.addresses), ...Object.values(within.datagrams)])
      expect(answer).toBe('Network is unreachable')
    expect(within.interfaces).toEqual(['lo'])
    expect(within.names['example.com']).not.toMatch(/^\d/)
    expect(within.names.localhost).toBe('127.0.0.1')
    expect(within.host_name).toBe('glovebox')
  })

  it('sees nothing of a parallel run in another slot', async () => {
    const leave = `
import os, socket, time
for at in ['/tmp', '/dev/shm', '.']:
    open(os.path.join(at, '${canary}'), 'w').write('${canary}')
one = socket.socket(socket.AF_UNIX); one.bind('\\0${canary}'); one.listen()
two = socket.socket(); two.bind(('127.0.0.1', 7777)); two.listen()
print('ready', flush=True)
time.sleep(30)
`
    const busy = other.start(python(leave))
    await busy.prints('ready')
    const asked = {
      ...{ canary, pids: [], roots: ['/tmp', '/dev/shm', '/home'], files: [], ports: [7777], addresses: [] },
      ...{ datagrams: [], unix: [`@${canary}`], names: [], facts: [], init: 1, jailed: true },
    }
    const look = python(lookAround, JSON.stringify(asked))
    const seen: Seen = JSON.parse((await slot.run(look)).stdout)
    busy.stop()
    await busy.ended
    expect(seen.canary_files).toEqual([])
    expect(seen.tcp['7777']).toBe('Connection refused')
    expect(seen.unix[`@${canary}`]).toBe('Connection refused')
    expect(seen.pids).toEqual([1, 2])
  })

  it('has ids that no process of another slot has', () => {
    const range = (pid: number) => /^\s*0\s+(\d+)\s+65536\s*$/.exec(readFileSync(`/proc/${pid}/uid_map`, 'utf8'))?.[1]
    expect(range(slot.pid)).toMatch(/^\d+$/)
    expect(range(slot.pid)).not.toBe(range(other.pid))
    expect(Number(range(slot.pid)) % 65536).toBe(0)
  })

  it('learns from no file which programs others start, and does not block a program that locks one', async () => {
    const shared = promisify(execFile)
    const meanwhile = () => shared('/usr/bin/flock', ['-n', '/usr/bin/base32', '/usr/bin/base64', '--version'])
    const plainly = shared('/usr/bin/python3', ['-c', watchUsr])
    await once(plainly.child.stdout ?? process.stdout, 'data')
    await expect(meanwhile()).rejects.toThrow() // the lock is in its way
    await shared('/usr/bin/base64', ['--version'])
    expect((await plainly).stdout).toMatch(/^saw .*\bbase64\b/m)

    const run = slot.start(python(watchUsr))
    await run.prints('ready')
    await meanwhile()
    await other.bash('/usr/bin/flock -n /usr/bin/base32 /usr/bin/base64 --version')
    const saw = /^saw(.*)$/m.exec((await run.ended).stdout)?.[1]
    expect(saw?.trim().split(' ')).toEqual(['base32']) // which it opened itself
  })

  it('holds no lock that the host or another slot notices, on any file', async () => {
    const shared = promisify(execFile)
    const holder = shared('/usr/bin/python3', ['-c', lock, '/', '/dev/null', '/usr/bin/env'])
    await once(holder.child.stdout ?? process.stdout, 'data')
    const taken = shared('/usr/bin/python3', ['-c', lock.replace('sleep(20)', 'sleep(0)'), '/', '/dev/null'])
    expect((await taken).stdout).toBe('/ held\n/dev/null held\nready\n')
    holder.child.kill()
    await holder.catch(() => undefined)

    const run = slot.start(python(lock, ...lockable))
    await run.prints('ready')
    const free = [...lockable.map((path) => `${path} free`), 'ready', ''].join('\n')
    const quick = lock.replace('sleep(20)', 'sleep(0)')
    expect((await other.run(python(quick, ...lockable))).stdout).toBe(free)
    expect((await other.run(python(quick, '/dev/stdin'))).stdout).toBe('/dev/stdin free\nready\n')
    const ofHost = ['/', '/dev/null', '/dev/zero', '/dev/urandom', '/usr', '/usr/bin/env', process.execPath]
    expect((await plain('/usr/bin/python3', '-c', quick, ...ofHost)).stdout).not.toContain('held')
    run.stop()
    expect((await run.ended).stdout).toBe(free)
  })

  it('cannot tell from its files on which machine it runs, how loaded that is, or where its files come from', async () => {
    expect(without.facts['sys/kernel/random/boot_id']).toMatch(/^[0-9a-f-]{36}\n$/)
    expect(without.facts['sys/fs/file-nr']).toMatch(/^\d/)
    const { 'sys/kernel/random/boot_id': bootId, loadavg, swaps, cgroups, meminfo, ...counters } = within.facts
    expect(bootId).toMatch(/^[0-9a-f-]{36}\n$/)
    expect(bootId).not.toBe(without.facts['sys/kernel/random/boot_id'])
    expect((await other.bash('cat /proc/sys/kernel/random/boot_id')).stdout).not.toBe(bootId)
    expect((await slot.bash('cat /proc/sys/kernel/random/boot_id')).stdout).toBe(bootId)
    expect(swaps?.trim().split('\n')).toHaveLength(1)
    expect(cgroups).not.toBe(without.facts.cgroups)
    expect(meminfo).toMatch(
      new RegExp(`^MemTotal: +${slot.limits.memoryBytes / 1024} kB\nMemFree: +${slot.limits.memoryBytes / 1024} kB\n`),
    )
    expect(loadavg).toBe('0.00 0.00 0.00 1/1 1\n')
    for (const [name, content] of Object.entries(counters)) expect([name, content]).toEqual([name, ''])
    for (const word of [bench.facts.stateDir, slot.id, 'devtmpfs', dirname(process.execPath), '/dev/vd', '/dev/sd'])
      expect(within.mountinfo).not.toContain(word)
  })

  it('leaves no trace on a device or a file that others use', async () => {
    expect((await slot.python(touchDevices)).stdout.trim().split('\n')).toEqual(
      ['null', 'zero', 'full', 'random', 'urandom', 'tty', '../usr/bin/true', '../etc/passwd'].map(
        (name) => `${name} Read-only file system`,
      ),
    )
    expect((await slot.bash('echo gone >/dev/null && head -c 3 /dev/zero | od -An -tx1')).stdout).toBe(' 00 00 00\n')
  })
})
