/** Attacks on promise 46. */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Machine } from '../../src/engine/machine.ts'
import { createSlot } from '../../src/engine/slots/create-slot.ts'
import { readsMounts } from '../../src/engine/slots/mount-turns.ts'
import type { Slot } from '../../src/engine/slots/slot.ts'
import { type EngineMachine, engineMachine, installed, start, testLimits } from '../support/engine-machine.ts'
import { until } from '../support/glovebox.ts'
import { inPrivateMounts } from '../support/private-mounts.ts'

/** Readers in one run, within its limit of processes. */
const readers = 24

/** Reads a file in many processes for a number of seconds, and prints how often the first one has read it. */
const readsOften = (path: string, seconds: number) => `
import os, time
end = time.monotonic() + ${seconds}
children = []
for _ in range(${readers - 1}):
    pid = os.fork()
    if pid == 0: break
    children.append(pid)
file, count = os.open('${path}', os.O_RDONLY), 0
while time.monotonic() < end:
    os.lseek(file, 0, 0)
    while os.read(file, 65536): pass
    count += 1
if pid == 0: os._exit(0)
for pid in children: os.waitpid(pid, 0)
print('read', count > 0)
`

/** Whether the kernel was asked to suspend a process with its cgroup. */
function isSuspended(pid: number): boolean {
  for (const line of readFileSync(`/proc/${pid}/cgroup`, 'utf8').split('\n')) {
    const [, controllers = '', path = ''] = line.split(':')
    const [dir, file] =
      controllers === 'freezer'
        ? [join('/sys/fs/cgroup/freezer', path), 'freezer.state']
        : [join('/sys/fs/cgroup', path), 'cgroup.freeze']
    if (controllers !== 'freezer' && controllers !== '') continue
    if (existsSync(join(dir, file))) return !['THAWED', '0'].includes(readFileSync(join(dir, file), 'utf8').trim())
  }
  return false
}

inPrivateMounts(import.meta.filename, () => {
  describe('a process that reads the list of its mounts', () => {
    const children: ChildProcess[] = []
    afterAll(() => {
      for (const child of children) child.kill('SIGKILL')
    })
    const begin = (command: string, ...words: string[]) => {
      const child = spawn(command, words, { stdio: 'ignore' })
      children.push(child)
      return child.pid!
    }

    it('delays every mount of the machine, and is recognized by what it waits for', async () => {
      const reading = (path: string) =>
        Array.from({ length: 8 }, () =>
          begin(
            'python3',
            '-c',
            `import os\nf = os.open('${path}', 0)\nwhile True:\n os.lseek(f, 0, 0)\n while os.read(f, 65536): pass`,
          ),
        )
      const [hostile, ordinary] = [reading('/proc/self/mountinfo'), reading('/proc/self/stat')]
      const mounting = 'while :; do mount -t tmpfs none /mnt && umount /mnt; done'
      begin('unshare', '--mount', 'sh', '-c', mounting)
      await until(() => hostile.some(readsMounts), 'a reader has or awaits the lock of the mounts')
      for (let look = 0; look < 50; look++) {
        expect(ordinary.some(readsMounts)).toBe(false)
        await sleep(2)
      }
    })
  })

  for (const runtime of ['crun', 'runc'] as const) {
    describe.skipIf(!installed(runtime))(`a run that reads the list of its mounts, in a slot of ${runtime}`, () => {
      let machine: EngineMachine
      let host: Machine
      const slots: Slot[] = []
      beforeAll(async () => {
        machine = engineMachine(runtime)
        host = await machine.open()
        for (let n = 0; n < 3; n++) slots.push(await createSlot(host))
        for (const slot of slots) slot.bind({ ...testLimits, pids: 64 })
      })
      afterAll(async () => {
        for (const slot of slots) await slot.destroy()
        await host?.close()
        const left = machine.leftovers()
        machine.remove()
        expect(left).toEqual([])
      })

      it('is suspended while jails of others are made, and no other run is; both succeed', async () => {
        const [hostile, ordinary, victim] = slots as [Slot, Slot, Slot]
        const seconds = { timeoutMs: 60_000 }
        const hostileRun = start(hostile, 'python', readsOften('/proc/self/mountinfo', 6), seconds).ran
        const ordinaryRun = start(ordinary, 'python', readsOften('/proc/self/stat', 6), seconds).ran
        const seen = { hostile: false, ordinary: false }
        const sampler = setInterval(() => {
          seen.hostile ||= isSuspended(hostile.pid)
          seen.ordinary ||= isSuspended(ordinary.pid)
        }, 1)
        await sleep(500)
        for (let n = 0; n < 500 && !seen.hostile; n++)
          expect((await start(victim, 'bash', 'echo on').ran).stdout).toBe('on\n')
        expect(seen).toEqual({ hostile: true, ordinary: false })
        const ended = await Promise.all([hostileRun, ordinaryRun])
        clearInterval(sampler)
        for (const ran of ended)
          expect(ran).toMatchObject({ ending: { kind: 'exited', code: 0 }, stdout: 'read True\n' })
      }, 90_000)

      it('is ended by its timeout like any other', async () => {
        const [hostile, , victim] = slots as [Slot, Slot, Slot]
        const run = start(hostile, 'python', readsOften('/proc/self/mountinfo', 600), { timeoutMs: 2_000 }).ran
        let isOver = false
        void run.then(() => {
          isOver = true
        })
        while (!isOver) await start(victim, 'bash', 'true').ran
        expect((await run).ending).toMatchObject({ kind: 'timed_out' })
        expect(hostile.healthy).toBe(true)
        expect((await start(hostile, 'bash', 'echo next').ran).stdout).toBe('next\n')
      }, 60_000)
    })
  }
})
