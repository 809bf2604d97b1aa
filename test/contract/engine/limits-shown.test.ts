import { describe, expect, it } from 'vitest'
import { installed, prewarm, start, testLimits } from '../../support/engine-machine.ts'
import { hasJava, javaLimits } from '../../support/java.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { twoSlots } from '../../support/two-slots.ts'

const runtime = (['crun', 'runc'] as const).find(installed)
const { memoryBytes, pids } = testLimits
const memoryKib = memoryBytes / 1024

/** What programs and libraries read, with what they find there. */
const files: Record<string, string> = {
  '/proc/swaps': 'Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n',
  '/proc/loadavg': '0.00 0.00 0.00 1/1 1\n',
  '/proc/cgroups':
    '#subsys_name\thierarchy\tnum_cgroups\tenabled\n' +
    ['cpuset', 'cpu', 'cpuacct', 'memory', 'pids'].map((name) => `${name}\t0\t1\t1\n`).join(''),
  '/sys/fs/cgroup/cgroup.controllers': 'cpu memory pids\n',
  '/sys/fs/cgroup/memory.max': `${memoryBytes}\n`,
  '/sys/fs/cgroup/memory.current': '4096\n',
  '/sys/fs/cgroup/memory.high': 'max\n',
  '/sys/fs/cgroup/memory.swap.max': '0\n',
  '/sys/fs/cgroup/cpu.max': '100000 100000\n',
  '/sys/fs/cgroup/pids.max': `${pids}\n`,
  '/sys/fs/cgroup/memory/memory.limit_in_bytes': `${memoryBytes}\n`,
  '/sys/fs/cgroup/cpu/cpu.cfs_quota_us': '100000\n',
  '/sys/fs/cgroup/cpu/cpu.cfs_period_us': '100000\n',
  '/sys/fs/cgroup/pids/pids.max': `${pids}\n`,
}

/** Names in the directory of the limits, from there: only generated ones. */
const listed = `${[
  "ls: cannot access '../cgroup/cgroup.procs': No such file or directory",
  ...['../cgroup', 'cgroup.controllers', 'cpu', 'cpu.max', 'memory', 'memory.current', 'memory.high', 'memory.max'],
  ...['memory.swap.max', 'pids', 'pids.max'],
].join('\n')}\n`

const readFiles = `
import json
print(json.dumps({path: open(path).read() for path in ${JSON.stringify(Object.keys(files))}}))
`

inPrivateMounts(import.meta.filename, () => {
  describe.skipIf(runtime === undefined)('a run', () => {
    const slots = twoSlots(runtime, testLimits)

    /** Runs a program in a new interpreter and in a prewarmed one. */
    const both = async (language: 'python' | 'node', code: string): Promise<string[]> => {
      await prewarm(slots.prewarmed, language)
      const ran = await Promise.all([slots.fresh, slots.prewarmed].map((slot) => start(slot, language, code).ran))
      expect(ran.map(({ stderr }) => stderr)).toEqual(['', ''])
      return ran.map(({ stdout }) => stdout)
    }
    const bash = async (code: string) => (await start(slots.fresh, 'bash', code).ran).stdout

    it('finds its limits in the files of the kernel', async () => {
      for (const printed of await both('python', readFiles)) expect(JSON.parse(printed)).toEqual(files)
    })

    it('is at the root of its cgroups', async () => {
      const code = "print({line.split(':', 2)[2] for line in open('/proc/self/cgroup')})"
      expect(await both('python', code)).toEqual(["{'/\\n'}\n", "{'/\\n'}\n"])
      expect(await bash('tail -n 1 /proc/self/cgroup; cut -d: -f3 /proc/1/cgroup | sort -u')).toBe('0::/\n/\n')
    })

    it('has the memory of its limit for free, and no swap', async () => {
      const printed = await bash('free -b && free -k -w -t >/dev/null && vmstat -s >/dev/null; echo $?')
      expect(printed).toMatch(new RegExp(`^Mem: +${memoryBytes} +0 +${memoryBytes} +0 +0 +${memoryBytes}$`, 'm'))
      expect(printed).toMatch(/^Swap: +0 +0 +0$/m)
      expect(await bash('grep -c . /proc/meminfo; sed -n "s/^MemTotal: *//p" /proc/meminfo')).toBe(
        `17\n${memoryKib} kB\n`,
      )
    })

    it('has the processors of its limit for nproc, python, node and /proc/cpuinfo', async () => {
      expect(await bash('nproc; grep -c ^processor /proc/cpuinfo; grep -c "^cpu[0-9]" /proc/stat')).toBe('1\n1\n1\n')
      const code = 'import os, multiprocessing as m; print(len(os.sched_getaffinity(0)), os.cpu_count(), m.cpu_count())'
      for (const printed of await both('python', code)) expect(printed).toMatch(/^1 /)
      expect(
        await both('node', 'const os = require("os"); console.log(os.availableParallelism(), os.cpus().length)'),
      ).toEqual(['1 1\n', '1 1\n'])
    })

    // V8 has no heap below 256 MiB; by the memory of a machine it would take gigabytes.
    it('has a heap in Node.js that is sized by its memory', async () => {
      const code = `
        const os = require('node:os')
        const heap = require('node:v8').getHeapStatistics().heap_size_limit
        console.log(process.constrainedMemory(), os.totalmem(), os.freemem(), heap < ${512 * 1024 ** 2})`
      const expected = `${memoryBytes} ${memoryBytes} ${memoryBytes} true\n`
      expect(await both('node', code)).toEqual([expected, expected])
    })

    it('has one mount of type cgroup2, at the place of its files', async () => {
      const fields = 'awk \'$(NF-2) == "cgroup2" || $(NF-2) == "cgroup" { print $4, $5, $NF }\' /proc/self/mountinfo'
      expect(await bash(fields)).toMatch(/^\/ \/sys\/fs\/cgroup r[ow]\S*\n$/)
      expect(await bash('cd /sys/fs/cgroup && ls -d c* m* p* ../* ../cgroup/cgroup.procs 2>&1')).toBe(listed)
    })

    it.skipIf(!hasJava)('has a heap in a Java virtual machine that is sized by its memory', async () => {
      expect(await bash(javaLimits)).toBe(`${memoryBytes / 2}\n1\n${memoryBytes} ${memoryBytes - 4096}\n`)
    })
  })
})
