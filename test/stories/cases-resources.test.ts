/** Cases from public bug reports about resource limits, with our own inputs. */
import { writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { callTool, type Execution, execute, follow, post } from '../support/calls.ts'
import { type Glovebox, Place, until } from '../support/glovebox.ts'
import { newKey } from '../support/keys.ts'
import { slotsOf } from '../support/machine.ts'

const MiB = 1024 * 1024
const memoryBytes = 96 * MiB

const place = new Place()
const config = join(place.directory, 'glovebox.yaml')
writeFileSync(
  config,
  `dev: false
limit_memory: 96MiB
limit_tmp: 24MiB
limit_home: 16MiB
limit_file_size: 20MiB
limit_pids: 40
limit_open_files: 64
limit_cpus: 0.7
profiles:
  two: { limit_cpus: 1.5 }
  many: { limit_cpus: 64 }
  roomy: { limit_memory: 512MiB, limit_tmp: 64MiB, limit_home: 64MiB, limit_file_size: 1GiB }
`,
)
let server: Glovebox
let url = ''
type ProfileName = 'default' | 'two' | 'many' | 'roomy'
const keys = {} as Record<ProfileName, object>
beforeAll(async () => {
  server = await place.start('--no-prewarm-jails', '--no-dev', '--config', config, '--runs-max', '8')
  url = server.url
  for (const profile of ['default', 'two', 'many', 'roomy'] as const) {
    keys[profile] = (await newKey(place, '--profile', profile, '--config', config)).headers
  }
})
afterAll(() => place.remove())

const run = (language: string, code: string, more: object = {}, profile: ProfileName = 'default') =>
  execute(url, language, code, { timeout: 60, ...more }, keys[profile])
const nothingRuns = () => slotsOf(place).every(({ runPids }) => runPids.length === 0)

/** Programs that exceed their memory, by method of allocation. */
const greedy: readonly [what: string, language: string, code: string][] = [
  ['one large block', 'python', 'print("begun"); x = b"x" * (200 * 1024 * 1024); print("never")'],
  ['many small ones', 'python', 'print("begun"); x = []\nwhile True: x.append(bytearray(65536))'],
  ['a growing heap', 'node', 'console.log("begun"); const x = []; for (;;) x.push(Buffer.alloc(1 << 20, 1))'],
  [
    'shared memory',
    'python',
    'import mmap\nprint("begun"); m = mmap.mmap(-1, 200 << 20)\nfor at in range(0, 200 << 20, 4096): m[at] = 1',
  ],
  ['a pipe of commands', 'bash', 'echo begun; exec head -c 1G /dev/zero | tail'],
  ['the shell itself', 'bash', 'echo begun; x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done'],
]

describe('a run that exceeds its memory', () => {
  it.each(greedy)('ends as out_of_memory with its limit and the output so far: %s', async (what, language, code) => {
    const answer = await run(language, code)
    if (what === 'a pipe of commands') {
      // The shell survives the command that was killed; the counter shows it.
      expect(answer.oom_kills).toBeGreaterThan(0)
      return
    }
    expect(answer.ending).toEqual({ kind: 'out_of_memory', limit_bytes: memoryBytes })
    expect(answer).toMatchObject({ stdout: 'begun\n', exit_code: 137 })
    expect(answer.memory_peak_bytes).toBeGreaterThan(memoryBytes * 0.9)
    expect(answer.memory_peak_bytes).toBeLessThanOrEqual(memoryBytes)
  })

  it('is explained to a model in text', async () => {
    const { body } = await callTool(url, { code: 'x = b"x" * (200 << 20)', language: 'python' }, keys.default)
    expect(body.result?.isError).toBe(true)
    expect(body.result?.content[0]?.text).toMatch(/96 MiB of memory \(out of memory\)/)
  })

  it('affects no other run: seven at once each end as out_of_memory, an eighth continues, and the server keeps working', async () => {
    const pids = [server.supervisorPid, server.frontPid, server.runnerPid]
    const bombs = Array.from({ length: 7 }, () => run('python', 'x = []\nwhile True: x.append(bytearray(1 << 20))'))
    const neighbour = run('bash', 'for i in 1 2 3 4 5; do echo $i; sleep 0.1; done')
    for (const { ending } of await Promise.all(bombs)) expect(ending.kind).toBe('out_of_memory')
    expect(await neighbour).toMatchObject({ stdout: '1\n2\n3\n4\n5\n', exit_code: 0 })
    expect([server.supervisorPid, server.frontPid, server.runnerPid]).toEqual(pids)
    expect(await server.readiness()).toBe(200)
  })

  it('has no swap to use, and is charged for /tmp and /dev/shm', async () => {
    const code =
      'head -c 23M /dev/zero > /tmp/a; head -c 23M /dev/zero > /dev/shm/b; head -c 15M /dev/zero > ~/c; python3 -c "x = b\'x\' * (60 << 20)"; echo $?'
    const answer = await run('bash', code)
    expect(answer.stdout).toBe('137\n')
    expect(answer.oom_kills).toBeGreaterThan(0)
  })

  it('leaves its slot usable for the next run', async () => {
    for (let count = 0; count < 3; count++) {
      await run('python', 'x = b"x" * (200 << 20)')
      const { memory_peak_bytes: peak, oom_kills: kills } = await run('bash', 'echo fine')
      expect(kills).toBe(0)
      expect(peak).toBeLessThan(memoryBytes / 2)
    }
  })
})

describe('a fork bomb', () => {
  it.each([
    ['bash', ':(){ :|:& };:; sleep 1; echo over'],
    [
      'python',
      'import os, time\nerror = None\nfor _ in range(500):\n    try:\n        if os.fork() == 0: time.sleep(5); os._exit(0)\n    except OSError as e: error = e; break\nprint(error.errno if error else "no end")',
    ],
    [
      'node',
      'const { spawn } = require("node:child_process"); let failed = 0; for (let i = 0; i < 120; i++) spawn("sleep", ["3"], { stdio: "ignore" }).on("error", (e) => { if (!failed++) console.log(e.code) }); setTimeout(() => process.exit(0), 1500)',
    ],
  ])('of %s are refused with EAGAIN, and end with their run', async (language, code) => {
    const answer = await run(language, code, { timeout: 20 })
    const told = answer.stdout + answer.stderr
    if (language === 'python') expect(answer.stdout).toBe('11\n')
    else expect(told).toMatch(/EAGAIN|Resource temporarily unavailable|Cannot fork/i)
    await until(nothingRuns, 'nothing of it is left')
  })

  it('leaves other runs and the server responsive, even at full speed', async () => {
    const bomb = await follow(
      url,
      'python',
      'import os\nprint("lit", flush=True)\nwhile True:\n    try: os.fork()\n    except OSError: pass',
      { timeout: 60 },
      keys.default,
    )
    await bomb.said('lit')
    for (let count = 0; count < 3; count++) {
      expect(await run('bash', `echo neighbour ${count}`, {}, 'two')).toMatchObject({ stdout: `neighbour ${count}\n` })
      expect(await run('bash', 'echo same key')).toMatchObject({ stdout: 'same key\n' })
    }
    expect(await server.readiness()).toBe(200)
    await post(`${url}/v1/executions/${bomb.runId}/cancel`, {}, keys.default)
    // The memory of its processes can reach its limit first.
    const kind = expect.stringMatching(/^(cancelled|out_of_memory)$/)
    expect(await bomb.result).toMatchObject({ ending: { kind } })
    await until(nothingRuns, 'nothing of it is left')
  })

  it('is stopped by a limit that includes threads', async () => {
    const code =
      'import threading, time\nn = 0\ntry:\n    while n < 500: threading.Thread(target=time.sleep, args=(5,), daemon=True).start(); n += 1\nexcept RuntimeError as e: print(n < 40, e)\nimport os; os._exit(0)'
    expect((await run('python', code)).stdout).toMatch(/^True can't start new thread/)
  })
})

describe('a full disk', () => {
  /** Every place where a file can be created, as the program itself finds them. */
  const places = `import os
def writable():
    for line in open("/proc/self/mounts"):
        path = line.split()[1]
        try:
            name = os.path.join(path, ".probe")
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY)); os.unlink(name); yield path
        except OSError: pass
    for path in ("/", "/tmp", "/var/tmp", "/dev/shm", "/dev", "/run", "/mnt", "/etc", os.environ["HOME"]):
        try:
            name = os.path.join(path, ".probe")
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY)); os.unlink(name); yield path
        except OSError: pass
found = sorted({os.path.realpath(path) for path in writable()})
`

  it('is reported in every writable place, and every such place has a limit', async () => {
    const code = `${places}
import errno
for path in found:
    total, at = 0, 0
    try:
        while total < 200 << 20:
            with open(f"{path}/fill{at}", "wb") as out:
                for _ in range(16): total += out.write(bytes(1 << 20))
            at += 1
        print(path, "no end")
    except OSError as e: print(path, errno.errorcode[e.errno], total >> 20)
    for name in os.listdir(path):
        if name.startswith("fill"): os.unlink(f"{path}/{name}")
`
    const answer = await run('python', code, {}, 'roomy')
    expect(answer.exit_code).toBe(0)
    const rows = answer.stdout
      .trim()
      .split('\n')
      .map((line) => line.split(' '))
    expect(rows.map(([path]) => path)).toEqual(expect.arrayContaining(['/dev/shm', '/home/baponi', '/tmp']))
    for (const [path, error, filled] of rows) {
      expect([path, error]).toEqual([path, 'ENOSPC'])
      expect(Number(filled)).toBeLessThanOrEqual(64)
    }
  })

  it('also stops the creation of empty files', async () => {
    const code = `${places}
import errno
for path in found:
    count, error = 0, "no end"
    try:
        while count < 3_000_000: os.close(os.open(f"{path}/n{count}", os.O_CREAT | os.O_WRONLY)); count += 1
    except OSError as e: error = errno.errorcode[e.errno]
    print(path, error, flush=True)
    for at in range(count): os.unlink(f"{path}/n{at}")
`
    const answer = await run('python', code)
    const rows = answer.stdout.trim().split('\n').filter(Boolean)
    for (const row of rows) expect(row).toMatch(/ENOSPC$/)
    // File names use kernel memory and are charged as such: one of the two limits is reached first.
    if (answer.ending.kind !== 'exited') expect(answer.ending.kind).toBe('out_of_memory')
    else expect(rows.length).toBeGreaterThanOrEqual(3)
    expect(await run('bash', 'ls -A ~ /tmp /dev/shm | grep -c n1')).toMatchObject({ stdout: '0\n' })
  })

  it('is not needed to stop one file at the file size limit', async () => {
    const code =
      'import os, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nwith open("/tmp/one", "wb", 0) as out:\n    n = 0\n    try:\n        while True: n += out.write(bytes(1 << 20))\n    except OSError as e: print(e.errno, n >> 20)'
    expect((await run('python', code)).stdout).toBe('27 20\n')
    expect((await run('bash', 'head -c 21M /dev/zero > /tmp/one')).exit_code).not.toBe(0)
  })

  it('is empty again for the next run', async () => {
    await run('bash', 'head -c 15M /dev/zero > ~/a; head -c 19M /dev/zero > /tmp/b; head -c 19M /dev/zero > /dev/shm/c')
    const code = 'ls -A ~ /tmp /dev/shm | grep -E "^[abc]$"; head -c 15M /dev/zero > ~/again && echo room'
    expect((await run('bash', code)).stdout).toBe('room\n')
  })
})

describe('open files', () => {
  it('are limited as the profile says', async () => {
    const code =
      'n = []\ntry:\n    while True: n.append(open("/dev/null"))\nexcept OSError as e: print(e.errno, len(n) < 64)'
    expect((await run('python', code)).stdout).toBe('24 True\n')
  })
})

describe('processors', () => {
  const machine = availableParallelism()
  it.each([
    ['default', 1],
    ['two', Math.min(2, machine)],
    ['many', machine],
  ] as const)('of the profile %s are what every program counts: %i', async (profile, count) => {
    const python =
      'import os, multiprocessing, concurrent.futures as c\nprint(os.cpu_count(), len(os.sched_getaffinity(0)), multiprocessing.cpu_count(), c.ThreadPoolExecutor()._max_workers - 4)'
    expect((await run('python', python, {}, profile)).stdout).toBe(`${count} ${count} ${count} ${count}\n`)
    const node = 'const os = require("node:os"); console.log(os.cpus().length, os.availableParallelism())'
    expect((await run('node', node, {}, profile)).stdout).toBe(`${count} ${count}\n`)
    const bash =
      'nproc; getconf _NPROCESSORS_ONLN; grep -c ^processor /proc/cpuinfo; grep -c "^cpu[0-9]" /proc/stat; ls -d /sys/devices/system/cpu/cpu[0-9]* | wc -l'
    expect((await run('bash', bash, {}, profile)).stdout).toBe(`${count}\n`.repeat(5))
  })

  it('cannot be widened by the program', async () => {
    const code =
      'import os\ntry: os.sched_setaffinity(0, range(1024))\nexcept OSError as e: print(e.errno)\nprint(len(os.sched_getaffinity(0)))'
    expect((await run('python', code)).stdout).toMatch(/^(?:\d+\n)?1\n$/)
  })

  it('are a share that holds for any number of processes', async () => {
    const busy =
      'import os, time\nfor _ in range(3): os.fork()\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass'
    const { cpu_time_ms: used, duration_ms: took } = await run('python', busy)
    // The kernel hands out the quota per tenth of a second, so one more period can be added.
    expect(used).toBeLessThanOrEqual(took * 0.7 + 150)
  })

  it('are distributed: parallel runs do not share one processor', async ({ skip }) => {
    if (machine < 2) skip('this machine has one processor')
    const where = 'grep -o "[0-9]*$" <(grep Cpus_allowed_list /proc/self/status); sleep 1'
    const both = await Promise.all([run('bash', where), run('bash', where)])
    expect(new Set(both.map(({ stdout }) => stdout)).size).toBe(2)
  })
})

describe('the number of parallel runs of an organization', () => {
  it('is limited: the next run waits, and other organizations are unaffected', async () => {
    const other = new Place()
    try {
      const small = await other.start('--no-dev', '--runs-max', '4', '--runs-per-org', '1', '--queue-per-org', '1')
      const { headers: mine } = await newKey(other, '--org', 'mine')
      const { headers: theirs } = await newKey(other, '--org', 'theirs')
      const first = await follow(small.url, 'bash', 'echo first; sleep 60', { timeout: 60 }, mine)
      await first.said('first')
      const second = execute(small.url, 'bash', 'echo second', {}, mine)
      await until(() => other.runs().length === 2, 'the second waits')
      const third = await post<{ error: string }>(
        `${small.url}/v1/sandbox/execute`,
        { language: 'bash', code: '1' },
        mine,
      )
      expect([third.status, third.body.error]).toEqual([503, 'unavailable'])
      expect(third.headers.get('retry-after')).toMatch(/^\d+$/)
      expect(await execute(small.url, 'bash', 'echo theirs', {}, theirs)).toMatchObject({ stdout: 'theirs\n' })
      await post(`${small.url}/v1/executions/${first.runId}/cancel`, {}, mine)
      expect(await second).toMatchObject({ stdout: 'second\n' } satisfies Partial<Execution>)
    } finally {
      await other.remove()
    }
  })
})
