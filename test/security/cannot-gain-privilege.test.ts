/** Promise 2: a run cannot gain privilege. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { compile, outside, plain } from '../support/attacks.ts'
import { expectedAnswers, toAnswers } from '../support/call-answers.ts'
import { Bench, type BenchSlot, benchMissing, runtimesHere } from '../support/slot-bench.ts'

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
    expect([...within.keys()].sort()).toEqual(expectedAnswers.map(([name]) => name).sort())
    expect([...without.keys()]).toEqual([...within.keys()])
  })

  for (const [name, answer] of expectedAnswers) {
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
