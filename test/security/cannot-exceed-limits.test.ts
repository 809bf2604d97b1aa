/** Promise 4: a run cannot exceed its limits. */
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Limits } from '../../src/base/run.ts'
import { compile, outside } from '../support/attacks.ts'
import {
  bounded,
  counted,
  fillAll,
  heldBytes,
  sockets,
  uncharged,
  unchargedAmongIdle,
} from '../support/limit-attacks.ts'
import { attack, Bench, type BenchSlot, bash, benchMissing, python, runtimesHere } from '../support/slot-bench.ts'

const mib = 1024 * 1024
const holdMemory = benchMissing === undefined ? compile('hold-memory') : ''
const forkBomb = benchMissing === undefined ? compile('fork-bomb') : ''

/** Runs a program with its arguments on mounts that end with it. */
const ontoOwnMounts = `
exec 3<"$0"
mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && cd /tmp/home || exit 1
cat <&3 >/tmp/program && chmod 700 /tmp/program && exec /tmp/program "$@"`

/** Memory of the machine that is neither free, nor of processes, nor a cache: what the kernel holds for itself. */
function uncountedBytes(): number {
  const kib = new Map(
    readFileSync('/proc/meminfo', 'latin1')
      .split('\n')
      .map((line) => [line.split(':')[0] ?? '', Number.parseInt(line.split(':')[1] ?? '', 10)]),
  )
  const of = (name: string) => kib.get(name) ?? 0
  const other = ['MemFree', 'Buffers', 'Cached', 'SReclaimable', 'AnonPages']
  return (of('MemTotal') - other.reduce((sum, name) => sum + of(name), 0)) * 1024
}

/** Writable directories, on any mount. */
const writableAnywhere = `
import os
for root, folders, files in os.walk('/'):
    if root.startswith('/proc/'):
        folders[:] = []
        continue
    if os.access(root, os.W_OK):
        print(root)
`

describe.skipIf(benchMissing !== undefined).each(runtimesHere)('a run in a slot of %s', (runtime) => {
  let bench: Bench
  let neighbour: BenchSlot

  beforeAll(async () => {
    bench = await Bench.open(runtime)
    neighbour = await bench.slot()
  })
  afterAll(() => bench?.close())

  /**
   * A separate slot for one attack. Afterwards its neighbor works as before, and so does it; unless the kernel still
   * held memory of the attack when it had ended: then it is not used again.
   */
  const inSlot = async (limits: Partial<Limits>, attempt: (slot: BenchSlot) => Promise<void>) => {
    const slot = await bench.slot(limits)
    await attempt(slot)
    await sleep(300) // The kernel frees messages and page tables of the dead some milliseconds later.
    const { unhealthyReason } = await slot.state()
    if (unhealthyReason !== undefined) expect(unhealthyReason).toBe('the memory of its last run was not free again')
    for (const one of unhealthyReason === undefined ? [slot, neighbour] : [neighbour])
      expect(await one.bash('echo serves')).toMatchObject({ stdout: 'serves\n', ending: { kind: 'exited', code: 0 } })
    await slot.destroy()
  }

  describe('cannot hold more memory than its limit', () => {
    const memoryBytes = 64 * mib
    // The other limits are out of the way.
    const limits = { memoryBytes, tmpBytes: 1024 * mib, homeBytes: 1024 * mib, fileBytes: 1024 * mib, openFiles: 1024 }

    it.each(counted)('as %s', async (way) => {
      // Without isolation: twice the limit, and it would continue.
      const without = await outside('/bin/sh', '-c', ontoOwnMounts, holdMemory, way, '128')
      expect(heldBytes(without.stdout)).toBeGreaterThanOrEqual(128 * mib)
      await inSlot(limits, async (slot) => {
        const outcome = await slot.attack(holdMemory, way, '512')
        expect(outcome.ending).toEqual({ kind: 'out_of_memory', limitBytes: memoryBytes })
        expect(outcome.oomKills).toBeGreaterThan(0)
        expect(heldBytes(outcome.stdout)).toBeLessThanOrEqual(memoryBytes)
        expect(outcome.memoryPeakBytes).toBeLessThanOrEqual(memoryBytes)
      })
    })

    it('as page tables, which are allocated implicitly', async () => {
      await inSlot(limits, async (slot) => {
        const outcome = await slot.attack(holdMemory, 'page-tables', '512')
        // Its processes are killed one after the other, and others follow; the first may see that.
        expect(outcome.oomKills).toBeGreaterThan(0)
        expect(outcome.memoryPeakBytes).toBeLessThanOrEqual(memoryBytes)
      })
    })

    it.each(sockets)('as buffers of %s sockets', async (way) => {
      const without = await outside('/bin/sh', '-c', `ip link set lo up && exec ${holdMemory} ${way} 128`)
      expect(heldBytes(without.stdout)).toBeGreaterThanOrEqual(128 * mib)
      await inSlot(limits, async (slot) => {
        const outcome = await slot.attack(holdMemory, way, '512')
        // An eighth of the limit; the kernel checks after the fact, so one more buffer of each side fits in.
        if (bench.facts.cgroups !== 'v2') expect(heldBytes(outcome.stdout)).toBeLessThanOrEqual(memoryBytes / 4)
        else expect(outcome.ending.kind === 'out_of_memory' || heldBytes(outcome.stdout) <= memoryBytes).toBe(true)
      })
    })

    it.each([...uncharged, ...unchargedAmongIdle])(
      'as %s socket buffers, which no cgroup is charged for',
      async (way) => {
        const without = await outside('/bin/sh', '-c', `ip link set lo up && exec ${holdMemory} ${way} 128`)
        expect(heldBytes(without.stdout)).toBeGreaterThanOrEqual(128 * mib)
        await inSlot({ ...limits, memoryBytes: 256 * mib }, async (slot) => {
          // At the target the program would end by itself; it is stopped long before.
          const outcome = await slot.attack(holdMemory, way, '1024')
          expect(outcome.ending).toEqual({
            kind: 'out_of_memory',
            limitBytes: 256 * mib,
            heldAs: 'socket_buffers',
          })
          expect(heldBytes(outcome.stdout || '0')).toBeLessThan(128 * mib)
        })
      },
    )

    it('together with fifteen other runs, in buffers that no cgroup is charged for', async () => {
      const slots = await Promise.all(Array.from({ length: 16 }, () => bench.slot(limits)))
      const beforeBytes = uncountedBytes()
      let mostBytes = 0
      const sample = setInterval(() => {
        mostBytes = Math.max(mostBytes, uncountedBytes() - beforeBytes)
      }, 5)
      try {
        const ways = [...uncharged, ...unchargedAmongIdle]
        const way = (at: number) => ways[at % ways.length] as string
        const outcomes = await Promise.all(slots.map((slot, at) => slot.attack(holdMemory, way(at), '512')))
        for (const { ending } of outcomes)
          expect(ending).toEqual({ kind: 'out_of_memory', limitBytes: memoryBytes, heldAs: 'socket_buffers' })
      } finally {
        clearInterval(sample)
      }
      expect(mostBytes).toBeLessThan(1.1 * slots.length * memoryBytes)
      await Promise.all(slots.map((slot) => slot.destroy()))
    })

    it('and keeps running with hundreds of connections, whatever they receive and however many ended before', async () => {
      const program = `
import socket
listener = socket.create_server(('127.0.0.1', 0), backlog=128)
def connect():
    near = socket.create_connection(listener.getsockname())
    return near, listener.accept()[0]
for each in range(2000):
    for end in connect(): end.close()
pairs = [connect() for each in range(450)]
for round in range(4):
    for near, far in pairs:
        near.sendall(b'x' * 60_000)
        far.recv(60_000, socket.MSG_WAITALL)
ended = open('/proc/net/sockstat').read().split(' tw ')[1].split()[0]
print(len(pairs), int(ended) <= 512)`
      await inSlot({ ...limits, memoryBytes: 256 * mib }, async (slot) => {
        expect(await slot.python(program)).toMatchObject({ stdout: '450 True\n', ending: { kind: 'exited', code: 0 } })
      })
    })

    it.each(bounded)('as %s, which are limited in number', async (way) => {
      await inSlot(limits, async (slot) => {
        const outcome = await slot.attack(holdMemory, way, '512')
        expect(outcome.ending).toEqual({ kind: 'exited', code: 0 })
        expect(heldBytes(outcome.stdout)).toBeLessThan(memoryBytes / 4)
      })
    })

    it('and keeps running while it only reads files, whose pages the kernel reclaims', async () => {
      await inSlot(limits, async (slot) => {
        const outcome = await slot.bash(
          'find /usr/lib -type f -size +1M -print0 | head -z -n 60 | xargs -0 cat | wc -c',
        )
        expect(outcome).toMatchObject({ ending: { kind: 'exited', code: 0 }, oomKills: 0 })
        expect(Number(outcome.stdout)).toBeGreaterThan(memoryBytes)
      })
    })
  })

  describe('cannot have more processes than its limit', () => {
    const pids = 24
    const bombs: [language: string, program: Parameters<BenchSlot['run']>[0]][] = [
      ['C', attack(forkBomb)],
      ['bash', bash(':(){ :|:& :; }; :; while true; do : & done')],
      [
        'python',
        python(`
import os
told = False
while True:
    try:
        os.fork()
    except OSError as error:
        if not told: print(error.strerror, flush=True)
        told = True
`),
      ],
      [
        'threads',
        python(`
import threading, time
count = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        count += 1
except RuntimeError as error:
    print(count, error, flush=True)
time.sleep(60)
`),
      ],
    ]

    it('which a fork bomb exceeds immediately without isolation', async () => {
      // Only a hundred of them, in a pid namespace that ends with them.
      expect((await outside(forkBomb, '100')).stdout).toContain('made 100')
    })

    it.each(bombs)('with a fork bomb in %s, and its neighbors are not affected', async (language, program) => {
      await inSlot({ pids, timeoutMs: 1_500, outputHardBytes: 64 * mib }, async (slot) => {
        const run = slot.start(program)
        await run.running
        for (let i = 0; i < 3; i++) {
          const beside = await neighbour.bash('echo $((6 * 7))')
          expect(beside).toMatchObject({ stdout: '42\n', ending: { kind: 'exited', code: 0 } })
        }
        const outcome = await run.ended
        expect(outcome.ending).toEqual({ kind: 'timed_out', limitMs: 1_500 })
        if (language === 'C') expect(outcome.stdout).toMatch(/^EAGAIN$/m)
        if (language === 'bash') expect(outcome.stderr).toContain('Resource temporarily unavailable')
        if (language === 'python') expect(outcome.stdout).toContain('Resource temporarily unavailable')
        if (language === 'threads') expect(Number.parseInt(outcome.stdout, 10)).toBeLessThan(pids)
        // The run ends within the timeout of the runner; otherwise the slot would be degraded.
        expect(await slot.state()).toMatchObject({ healthy: true })
      })
    })
  })

  it('finds every writable mount limited, in bytes and in names', async () => {
    const limits = { memoryBytes: 256 * mib, tmpBytes: 24 * mib, homeBytes: 16 * mib, fileBytes: 512 * mib }
    await inSlot(limits, async (slot) => {
      const filled = (await slot.python(fillAll)).stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
      const bytes = { '/tmp': limits.tmpBytes, '/dev/shm': limits.tmpBytes, '/home/baponi': limits.homeBytes }
      expect(filled.map(({ at }) => at).sort()).toEqual(Object.keys(bytes).sort())
      for (const { at, bytes: total, bytes_error, names, names_error } of filled) {
        expect([at, bytes_error, names_error]).toEqual([at, 'ENOSPC', 'ENOSPC'])
        expect(total).toBeLessThanOrEqual(bytes[at as keyof typeof bytes])
        expect(names).toBeLessThan(300_000)
      }
      const anywhere = (await slot.python(writableAnywhere)).stdout.trim().split('\n')
      expect(anywhere.sort()).toEqual(Object.keys(bytes).sort())
    })
  })

  it('cannot open more files, write a larger one, or raise a limit', async () => {
    // Four are open at the start: the three streams, and the one for images.
    await inSlot({ openFiles: 64, fileBytes: 2 * mib }, async (slot) => {
      const code = `
import errno, os, resource, signal
files = []
try:
    while True: files.append(open('/dev/null'))
except OSError as error: print(errno.errorcode[error.errno], len(files) + 4)
for file in files: file.close()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with open('large', 'wb', buffering=0) as file:
        for _ in range(10): file.write(b'x' * 1048576)
except OSError as error: print(errno.errorcode[error.errno], os.path.getsize('large'))
for name in ('NOFILE', 'FSIZE', 'NPROC', 'CORE', 'MEMLOCK', 'STACK', 'MSGQUEUE', 'SIGPENDING', 'NICE', 'RTPRIO'):
    limit = getattr(resource, 'RLIMIT_' + name)
    soft, hard = resource.getrlimit(limit)
    try:
        resource.setrlimit(limit, (soft, hard + 1))
        print(name, 'raised')
    except (OSError, ValueError): pass
`
      expect((await slot.python(code)).stdout).toBe(`EMFILE 64\nEFBIG ${2 * mib}\n`)
      expect((await slot.bash('head -c 3000000 /dev/zero >large; echo $?')).stdout).toBe('153\n') // SIGXFSZ
    })
  })

  it('gets no more of the processors than its share', async () => {
    const spin = 'for i in 1 2 3 4; do (while :; do :; done) & done; wait'
    // Without isolation these take all of the host; how much that is depends on its other load.
    await inSlot({ cpus: 0.5, timeoutMs: 2_000 }, async (slot) => {
      const { cpuTimeMs, durationMs, ending } = await slot.bash(spin)
      expect(ending).toEqual({ kind: 'timed_out', limitMs: 2_000 })
      // One period of tolerance on either side: half of 100 ms each.
      expect(cpuTimeMs).toBeLessThanOrEqual(durationMs * 0.5 + 100)
    })
  })

  it('cannot print more than its limit, whatever it ignores, and does not grow the memory of the runner', async () => {
    const before = await bench.memory()
    const ways = [
      bash(
        'trap "" PIPE TERM; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done',
      ),
      python('import os\nwhile True:\n    try: os.write(2, b"x" * 1000000)\n    except OSError: pass'),
      bash('while :; do cat /dev/zero; done'),
    ]
    for (const way of ways)
      await inSlot({ outputHardBytes: 3 * mib }, async (slot) => {
        const outcome = await slot.run(way)
        expect(outcome.ending).toEqual({ kind: 'output_limit', limitBytes: 3 * mib })
      })
    expect((await bench.memory()) - before).toBeLessThan(128 * mib)
  })

  it('cannot take more time than its limit, whatever it ignores', async () => {
    await inSlot({ timeoutMs: 500 }, async (slot) => {
      for (const code of ['trap "" TERM INT HUP XCPU; while :; do :; done', 'kill -STOP $$', 'exec sleep 60']) {
        const outcome = await slot.bash(code)
        expect(outcome.ending).toEqual({ kind: 'timed_out', limitMs: 500 })
        expect(outcome.durationMs).toBeGreaterThanOrEqual(499)
      }
    })
  })

  it('cannot queue signals, timers, watches or messages without end', async () => {
    const code = `
import ctypes, errno, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def count(what, most=100000):
    for number in range(most):
        if what() < 0: return number, errno.errorcode[ctypes.get_errno()]
    return most, 'no end'
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
value = ctypes.c_void_p(0)
print(count(lambda: libc.sigqueue(os.getpid(), signal.SIGRTMIN, value)))
made = ctypes.c_void_p()
print(count(lambda: libc.timer_create(1, None, ctypes.byref(made))))
print(count(lambda: libc.inotify_init1(0)))
print(count(lambda: libc.mlock(ctypes.c_void_p(libc.mmap and 0), 1 << 20), 10))
`
    await inSlot({}, async (slot) => {
      const lines = (await slot.python(code)).stdout.trim().split('\n')
      expect(lines).toHaveLength(4)
      for (const line of lines) expect(line).toMatch(/'(EAGAIN|EMFILE|ENOMEM)'\)$/)
    })
  })
})
