import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { StartRefused } from '../../../src/base/errors.ts'
import { cgroupMounts, openCgroups } from '../../../src/engine/cgroups/cgroups.ts'

const base = { memoryBytes: 1_000, pids: 9 }
const limits = { memoryBytes: 67_108_864, pids: 40, cpus: 0.5 }

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'glovebox-cgroup-'))
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

/** Files as the kernel shows them: a directory of plain files replaces the hierarchy. */
function place(files: Record<string, string>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), text)
  }
}
const text = (path: string) => readFileSync(join(root, path), 'utf8')
const mountinfo = (...mounts: [point: string, type: string, options: string][]) =>
  mounts
    .map(([point, type, options], at) => `${30 + at} 1 0:${at} / ${join(root, point)} rw - ${type} ${type} ${options}`)
    .join('\n')

describe('cgroup v2', () => {
  const open = () => openCgroups({ root, instanceId: 'a', base, mountinfo: mountinfo(['', 'cgroup2', 'rw']) })
  const slot = 'glovebox/a/slt_1'
  beforeEach(() =>
    place({
      'cgroup.subtree_control': 'cpu memory pids\n',
      'glovebox/cgroup.subtree_control': 'memory pids\n',
      'glovebox/a/cgroup.subtree_control': '\n',
      [`${slot}/cgroup.subtree_control`]: '\n',
    }),
  )

  it('enables only the missing controllers, and places processes in leaves', () => {
    const cgroup = open().create('slt_1')
    expect(text('cgroup.subtree_control')).toBe('cpu memory pids\n')
    expect(text('glovebox/cgroup.subtree_control')).toBe('+cpu')
    expect(text('glovebox/a/cgroup.subtree_control')).toBe('+memory +pids +cpu')
    expect(text(`${slot}/cgroup.subtree_control`)).toBe('+memory +pids +cpu')
    expect(cgroup.ociPath).toBe('/glovebox/a/slt_1/base')
    expect(text(`${slot}/base/memory.max`)).toBe('1000')
    expect(text(`${slot}/base/pids.max`)).toBe('9')
  })

  it('suspends a run for two reasons, and lets it continue when neither applies or it is being killed', async () => {
    place({ [`${slot}/run/cgroup.freeze`]: '0', [`${slot}/run/cgroup.events`]: 'populated 1\nfrozen 1\n' })
    const cgroup = open().create('slt_1')
    const state = () => text(`${slot}/run/cgroup.freeze`)[0]
    cgroup.limitRun(limits)
    cgroup.freezer.hold(true)
    expect(state()).toBe('1')
    await cgroup.freezer.freeze(true)
    cgroup.freezer.hold(false)
    expect(state()).toBe('1')
    cgroup.freezer.hold(true)
    place({ [`${slot}/run/cgroup.events`]: 'populated 1\nfrozen 0\n' })
    await cgroup.freezer.freeze(false)
    expect(state()).toBe('1')
    cgroup.liftProcessorLimits()
    cgroup.freezer.hold(true)
    expect(state()).toBe('0')
    cgroup.restoreProcessorLimits()
    cgroup.freezer.hold(true)
    expect(state()).toBe('1')
  })

  it('limits memory without swap, processes and cpu of the run', () => {
    place({ [`${slot}/run/memory.swap.max`]: 'max' })
    open().create('slt_1').limitRun(limits)
    expect(text(`${slot}/run/memory.max`)).toBe('67108864')
    expect(text(`${slot}/run/memory.swap.max`)).toMatch(/^0/)
    expect(text(`${slot}/run/pids.max`)).toBe('40')
    expect(text(`${slot}/run/cpu.max`)).toBe('50000 100000')
  })

  it('moves a process and measures the usage of each run from its start', async () => {
    place({
      [`${slot}/run/cpu.stat`]: 'usage_usec 5000\nuser_usec 1\n',
      [`${slot}/run/memory.events`]: 'oom 9\noom_kill 2\noom_group_kill 0\n',
      [`${slot}/run/memory.peak`]: '999999\n',
    })
    const cgroup = open().create('slt_1')
    expect(cgroup.peakScope).toBe('run')
    cgroup.beginUsage()
    await cgroup.moveToRun(123)
    expect(text(`${slot}/run/cgroup.procs`)).toBe('123')
    place({
      [`${slot}/run/cpu.stat`]: 'usage_usec 12500\n',
      [`${slot}/run/memory.events`]: 'oom_kill 3\n',
      [`${slot}/run/memory.peak`]: '4096\n',
    })
    expect(cgroup.usage()).toEqual({ cpuTimeMs: 7.5, memoryPeakBytes: 4_096, oomKills: 1 })
  })

  it('enables cpusets when the host has them, and binds the run', () => {
    const files = ['', 'glovebox/', 'glovebox/a/', `${slot}/`].map((dir) => [
      `${dir}cgroup.controllers`,
      'cpuset cpu io\n',
    ])
    place({ ...Object.fromEntries(files), 'glovebox/a/cpuset.cpus.effective': '0-1,5\n' })
    const cgroups = open()
    expect(cgroups.processors).toEqual([0, 1, 5])
    expect(cgroups.controllers).toContain('cpuset')
    cgroups.create('slt_1').bindRun([1, 5])
    expect(text(`${slot}/cgroup.subtree_control`)).toBe('+memory +pids +cpu +cpuset +io')
    expect(text(`${slot}/run/cpuset.cpus`)).toBe('1,5')
  })

  it('limits operations on a device when the host has the io controller', async () => {
    place({ 'cgroup.controllers': 'cpu io\n', [`${slot}/run/io.max`]: '' })
    const cgroups = open()
    expect(cgroups.controllers).toContain('io')
    await cgroups.create('slt_1').limitDevice('7:3', 500)
    expect(text(`${slot}/cgroup.subtree_control`)).toBe('+memory +pids +cpu +io')
    expect(text(`${slot}/run/io.max`)).toBe('7:3 riops=500 wiops=500')
  })

  it('works without cpusets when the host reserves them', () => {
    expect(open().processors).toBeUndefined()
    expect(open().controllers).not.toContain('cpuset')
  })

  it('describes its memory peak as estimated when the kernel records none', () => {
    place({
      [`${slot}/run/cpu.stat`]: 'usage_usec 0\n',
      [`${slot}/run/memory.events`]: 'oom_kill 0\n',
      [`${slot}/run/memory.current`]: '77\n',
    })
    const cgroup = open().create('slt_1')
    expect(cgroup.peakScope).toBe('end_of_run')
    cgroup.beginUsage()
    expect(cgroup.usage().memoryPeakBytes).toBe(77)
  })

  it('lists the processes of each leaf', () => {
    const cgroup = open().create('slt_1')
    place({ [`${slot}/base/cgroup.procs`]: '11\n12\n', [`${slot}/run/cgroup.procs`]: '' })
    expect(cgroup.basePids()).toEqual([11, 12])
    expect(cgroup.runPids()).toEqual([])
  })
})

describe('cgroup v1', () => {
  const v1: [string, string, string][] = [
    ['memory', 'cgroup', 'rw,memory'],
    ['pids', 'cgroup', 'rw,pids'],
    ['cpu,cpuacct', 'cgroup', 'rw,cpu,cpuacct'],
    ['devices', 'cgroup', 'rw,devices'],
  ]
  const open = (...more: [string, string, string][]) =>
    openCgroups({ root, instanceId: 'a', base, mountinfo: mountinfo(...v1, ...more) })
  beforeEach(() => place({ 'memory/memory.kmem.tcp.limit_in_bytes': '-1' }))
  const run = (controller: string, file: string) => `${controller}/glovebox/a/slt_1/run/${file}`
  const slotFiles = {
    [run('memory', 'memory.memsw.limit_in_bytes')]: 'max',
    [run('memory', 'memory.oom_control')]: 'oom_kill_disable 0\nunder_oom 0\noom_kill 1\n',
    [run('memory', 'memory.max_usage_in_bytes')]: '500\n',
    [run('cpu,cpuacct', 'cpuacct.usage')]: '1000000\n',
  }

  it('is detected in a hybrid of both', () => {
    expect(open().version).toBe('v1')
    expect(open(['unified', 'cgroup2', 'rw']).version).toBe('hybrid')
  })

  it('limits memory and swap together, processes and cpu of the run', () => {
    place(slotFiles)
    open().create('slt_1').limitRun(limits)
    expect(text(run('memory', 'memory.limit_in_bytes'))).toBe('67108864')
    expect(text(run('memory', 'memory.memsw.limit_in_bytes'))).toBe('67108864')
    expect(text(run('pids', 'pids.max'))).toBe('40')
    expect(text(run('cpu,cpuacct', 'cpu.cfs_quota_us'))).toBe('50000')
  })

  it('copies the cpuset of the parent to each new one, and binds the run', async () => {
    const dirs = ['', 'glovebox/', 'glovebox/a/', 'glovebox/a/slt_1/', 'glovebox/a/slt_1/run/']
    const empty = dirs.slice(1).flatMap((dir) => ['cpus', 'mems'].map((file) => [`cpuset/${dir}cpuset.${file}`, '\n']))
    place({ ...slotFiles, ...Object.fromEntries(empty), 'cpuset/cpuset.cpus': '0-3\n', 'cpuset/cpuset.mems': '0\n' })
    const cgroups = open(['cpuset', 'cgroup', 'rw,cpuset'])
    expect(cgroups.processors).toEqual([0, 1, 2, 3])
    const cgroup = cgroups.create('slt_1')
    for (const dir of dirs) {
      expect([dir, text(`cpuset/${dir}cpuset.cpus`).trim(), text(`cpuset/${dir}cpuset.mems`).trim()]).toEqual([
        dir,
        '0-3',
        '0',
      ])
    }
    cgroup.bindRun([2])
    expect(text(run('cpuset', 'cpuset.cpus'))).toMatch(/^2/)
    await cgroup.moveToRun(123)
    expect(text(run('cpuset', 'cgroup.procs'))).toBe('123')
  })

  it('limits operations on a device where processes of runs are in that hierarchy, if the host has it', async () => {
    const files = ['read', 'write'].map((way) => `blkio/glovebox/a/slt_1/base/blkio.throttle.${way}_iops_device`)
    place(Object.fromEntries(files.map((file) => [file, ''])))
    await open().create('slt_1').limitDevice('7:3', 500)
    expect(files.map(text)).toEqual(['', ''])
    await open(['blkio', 'cgroup', 'rw,blkio']).create('slt_1').limitDevice('7:3', 500)
    expect(files.map(text)).toEqual(['7:3 500', '7:3 500'])
  })

  it('works without cpusets', () => {
    expect(open().processors).toBeUndefined()
    expect(() => open().create('slt_1').bindRun([0])).toThrow(/cpuset/)
  })

  it('keeps a run from swapping when swap is not counted', () => {
    open().create('slt_1').limitRun(limits)
    expect(text(run('memory', 'memory.swappiness'))).toBe('0')
  })

  it('moves a process in every hierarchy once, and measures the usage since the start', async () => {
    place(slotFiles)
    const cgroup = open().create('slt_1')
    cgroup.beginUsage()
    expect(text(run('memory', 'memory.max_usage_in_bytes'))).toBe('0')
    await cgroup.moveToRun(123)
    for (const controller of ['memory', 'pids', 'cpu,cpuacct'])
      expect(text(run(controller, 'cgroup.procs'))).toBe('123')
    place({
      [run('cpu,cpuacct', 'cpuacct.usage')]: '3500000\n',
      [run('memory', 'memory.oom_control')]: 'oom_kill 2\n',
      [run('memory', 'memory.max_usage_in_bytes')]: '8192\n',
    })
    expect(cgroup.usage()).toEqual({ cpuTimeMs: 2.5, memoryPeakBytes: 8_192, oomKills: 1 })
  })

  it('reports the peak of a run without the page cache that earlier runs left and the kernel still has', () => {
    place(slotFiles)
    const cgroup = open().create('slt_1')
    const cache = (inactive: number, active: number) =>
      place({ [run('memory', 'memory.stat')]: `cache 1\ninactive_file ${inactive}\nactive_file ${active}\nshmem 0\n` })
    const peakAfter = (usedBytes: number, peakBytes: number, cacheAtEnd: number) => {
      place({ [run('memory', 'memory.usage_in_bytes')]: `${usedBytes}\n` })
      expect(cgroup.sharesMoreThan(10 ** 9)).toBe(false)
      cache(60_000_000, 30_000_000)
      cgroup.beginUsage()
      cache(0, cacheAtEnd)
      place({ [run('memory', 'memory.max_usage_in_bytes')]: `${peakBytes}\n` })
      return cgroup.usage().memoryPeakBytes
    }
    expect(peakAfter(100_000_000, 95_000_000, 90_000_000)).toBe(5_000_000)
    expect(peakAfter(100_000_000, 500_000_000, 1_000_000)).toBe(499_000_000)
    expect(peakAfter(2_000_000, 95_000_000, 90_000_000)).toBe(95_000_000)
  })

  it('refuses to start when a controller is missing, with the remedy', () => {
    const open = () => openCgroups({ root, instanceId: 'a', base, mountinfo: mountinfo(...v1.slice(1)) })
    expect(open).toThrow(StartRefused)
    expect(open).toThrow(/memory/)
  })
})

describe('the cgroup mounts of a host', () => {
  it('are those below the root, of cgroup types only', () => {
    const lines = [
      '25 22 0:22 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755',
      '26 25 0:23 / /sys/fs/cgroup/unified rw shared:1 - cgroup2 cgroup2 rw,nsdelegate',
      '27 25 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory',
      '28 22 0:25 / /elsewhere/pids rw - cgroup cgroup rw,pids',
    ]
    expect(cgroupMounts(lines.join('\n'), '/sys/fs/cgroup')).toEqual([
      { point: '/sys/fs/cgroup/unified', controllers: 'v2' },
      { point: '/sys/fs/cgroup/memory', controllers: ['rw', 'memory'] },
    ])
  })
})
