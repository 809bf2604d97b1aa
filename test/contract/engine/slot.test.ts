import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Machine } from '../../../src/engine/machine.ts'
import { createSlot } from '../../../src/engine/slots/create-slot.ts'
import type { Slot } from '../../../src/engine/slots/slot.ts'
import {
  type EngineMachine,
  engineMachine,
  installed,
  type Ran,
  start,
  testLimits,
} from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'

inPrivateMounts(import.meta.filename, () => {
  for (const runtime of ['crun', 'runc'] as const) {
    describe.skipIf(!installed(runtime))(`a slot of ${runtime}`, () => {
      let machine: EngineMachine
      let host: Machine
      let slot: Slot
      const runs = (...words: Parameters<typeof start> extends [Slot, ...infer Rest] ? Rest : never): Promise<Ran> =>
        start(slot, ...words).ran

      beforeAll(async () => {
        machine = engineMachine(runtime)
        host = await machine.open()
        slot = await createSlot(host)
        slot.bind(testLimits)
      })
      afterAll(async () => {
        await slot?.destroy()
        await host?.close()
        const left = machine.leftovers()
        machine.remove()
        expect(left).toEqual([])
      })

      it('runs python, with its exit code and correct line numbers in tracebacks', async () => {
        const ran = await runs('python', 'print("héllo")\n\n1/0\n')
        expect(ran).toMatchObject({ ending: { kind: 'exited', code: 1 }, stdout: 'héllo\n' })
        expect(ran.stderr).toContain('File "/run/glovebox/main.py", line 3')
        expect((await runs('python', 'raise SystemExit(3)')).ending).toEqual({ kind: 'exited', code: 3 })
        expect((await runs('python', 'import os; os._exit(7)')).ending).toEqual({ kind: 'exited', code: 7 })
      })

      it('runs node code of either module system, with top-level await, mixed and typed', async () => {
        for (const code of [
          'const fs = require("fs"); console.log(typeof fs.readFileSync)',
          'import fs from "node:fs"; console.log(await Promise.resolve(typeof fs.readFileSync))',
          'const fs = require("fs"); console.log(await Promise.resolve(typeof fs.readFileSync))',
          'const fs: { readFileSync?: unknown } = require("fs"); console.log(typeof fs.readFileSync)',
        ])
          expect(await runs('node', code), code).toMatchObject({
            ending: { kind: 'exited', code: 0 },
            stdout: 'function\n',
          })
        expect((await runs('node', 'process.exit(3)')).ending).toEqual({ kind: 'exited', code: 3 })
        expect((await runs('node', 'Promise.reject(new Error("x"))')).ending).toEqual({ kind: 'exited', code: 1 })
      })

      it('runs bash, with line numbers in errors', async () => {
        const ran = await runs('bash', 'echo a\nnosuch\nexit 4')
        expect(ran).toMatchObject({ ending: { kind: 'exited', code: 4 }, stdout: 'a\n' })
        expect(ran.stderr).toContain('main.sh: line 2: nosuch')
      })

      it('gives each language its standard input, or an empty one', async () => {
        expect((await runs('python', 'print(input())', { stdin: 'one\n' })).stdout).toBe('one\n')
        expect(
          (await runs('node', 'for await (const c of process.stdin) process.stdout.write(c)', { stdin: 'two' })).stdout,
        ).toBe('two')
        expect((await runs('bash', 'read x; echo "$x"', { stdin: 'three\n' })).stdout).toBe('three\n')
        expect((await runs('bash', 'cat | wc -c')).stdout.trim()).toBe('0')
        expect((await runs('python', 'input()')).stderr).toContain('EOFError')
      })

      it('accepts a megabyte of code and the variables of the caller', async () => {
        const code = `x = "${'a'.repeat(1_000_000)}"\nimport os\nprint(len(x), os.environ["NAME"], os.environ["TZ"])`
        expect((await runs('python', code, { env: { NAME: 'wert' } })).stdout).toBe('1000000 wert UTC\n')
      })

      it('reports a signal by name', async () => {
        expect((await runs('bash', 'kill -SEGV $$')).ending).toEqual({ kind: 'signaled', signal: 'SEGV' })
        expect((await runs('bash', 'kill -34 $$')).ending).toEqual({ kind: 'signaled', signal: '34' })
      })

      it('ends a run at its time limit with the output so far, and leaves no process behind', async () => {
        const ran = await runs('bash', 'echo partial; trap "" TERM INT HUP; (setsid sleep 1000 &); sleep 1000', {
          timeoutMs: 300,
        })
        expect(ran).toMatchObject({ ending: { kind: 'timed_out', limitMs: 300 }, stdout: 'partial\n' })
        expect(processesOf(slot)).toEqual(['guest', 'jailer'])
      })

      it('ends a run that is cancelled', async () => {
        const { run, ran } = start(slot, 'bash', 'sleep 1000', { onRunning: () => run.stop('cancelled') })
        expect((await ran).ending).toEqual({ kind: 'cancelled' })
      })

      it('ends a run that is cancelled before it started', async () => {
        const { run, ran } = start(slot, 'bash', 'echo never')
        run.stop('shutdown')
        expect(await ran).toMatchObject({ ending: { kind: 'shutdown' }, stdout: '', runMs: 0 })
      })

      it('reports exhausted memory, and counts children that were killed for it', async () => {
        const main = await runs('python', 'bytearray(1 << 30)')
        expect(main).toMatchObject({
          ending: { kind: 'out_of_memory', limitBytes: testLimits.memoryBytes },
          oomKills: 1,
        })
        expect(main.memoryPeakBytes).toBeGreaterThan(testLimits.memoryBytes * 0.9)
        const child = await runs('bash', 'python3 -c "bytearray(1 << 30)"; echo after')
        expect(child).toMatchObject({ ending: { kind: 'exited', code: 0 }, stdout: 'after\n', oomKills: 1 })
      })

      it('measures memory and cpu time of each run separately', async () => {
        const heavy = await runs('python', 'x = bytearray(64 << 20)\nfor i in range(2000000): pass')
        const light = await runs('bash', 'true')
        expect(heavy.memoryPeakBytes).toBeGreaterThan(64 * 1024 ** 2)
        expect(heavy.cpuTimeMs).toBeGreaterThan(light.cpuTimeMs)
        if (host.cgroups.version !== 'v2') expect(light.memoryPeakBytes).toBeLessThan(32 * 1024 ** 2)
      })

      it('ends a run that prints without end, also when it ignores a closed pipe', async () => {
        const ran = await runs('bash', 'trap "" PIPE; yes >&2')
        expect(ran.ending).toEqual({ kind: 'output_limit', limitBytes: testLimits.outputHardBytes })
        expect(ran.stderr).toHaveLength(testLimits.outputHardBytes)
        expect(ran.outputBytes.stderr).toBeGreaterThan(testLimits.outputHardBytes)
      })

      it('reads output that is not returned only after the pause, and counts all of it', async () => {
        const reported: number[] = []
        const excess = (bytes: number) => {
          reported.push(bytes)
          return bytes > 0 ? 20 : 0
        }
        const size = testLimits.outputHardBytes - 1
        const ran = await start(slot, 'python', `import os\nos.write(1, b"x" * ${size})`, { excess }).ran
        expect(ran).toMatchObject({ ending: { kind: 'exited', code: 0 }, outputBytes: { stdout: size, stderr: 0 } })
        expect(ran.stdout).toHaveLength(size)
        expect(reported.reduce((sum, bytes) => sum + bytes, 0)).toBeGreaterThan(0)
      })

      it('ends a run at its time limit while its output is not read', async () => {
        const code = 'import os\nwhile True: os.write(1, b"x" * 65536)'
        const { ran } = start(slot, 'python', code, { excess: () => 1e9, timeoutMs: 500 })
        expect((await ran).ending).toEqual({ kind: 'timed_out', limitMs: 500 })
        expect(processesOf(slot)).toEqual(['guest', 'jailer'])
      })

      it('ends a run at once whose output is not read', async () => {
        const code = 'import os\nwhile True: os.write(1, b"x" * 65536)'
        const excess = () => {
          run.stop('cancelled')
          return 1e9
        }
        const { run, ran } = start(slot, 'python', code, { excess })
        expect((await ran).ending).toEqual({ kind: 'cancelled' })
        expect(processesOf(slot)).toEqual(['guest', 'jailer'])
      })

      it('ends a run with too much output as output_limit, also when it exits at the same time', async () => {
        const ran = await runs('python', `import os\nos.write(1, b"x" * ${testLimits.outputHardBytes + 1})`)
        expect(ran.ending.kind).toBe('output_limit')
      })

      it('answers when the main process has ended, although a process holds its output open', async () => {
        const ran = await runs('bash', 'sleep 1000 & (setsid sleep 1000 &); echo done')
        expect(ran).toMatchObject({ ending: { kind: 'exited', code: 0 }, stdout: 'done\n' })
        expect(processesOf(slot)).toEqual(['guest', 'jailer'])
      })

      it('survives a fork bomb', async () => {
        expect((await runs('bash', ':(){ :|:& };: 2>/dev/null; sleep 1000', { timeoutMs: 500 })).ending.kind).toBe(
          'timed_out',
        )
        expect((await runs('bash', 'echo still here')).stdout).toBe('still here\n')
      })

      it('stays healthy through all of that', () => {
        expect(slot.unhealthyReason).toBeUndefined()
        expect(slot.healthy).toBe(true)
      })

      it('keeps its image read-only against root in the slot, with and without the covering mounts', async () => {
        const own = await createSlot(host)
        const slotRoot = `/proc/${own.pid}/root`
        const inImage = [
          `--root=${slotRoot}/scratch/root`,
          `--wd=${slotRoot}/image`,
          '-t',
          String(own.pid),
          '-U',
          '-m',
          '--',
        ]
        const said = execFileSync('nsenter', [...inImage, '/usr/bin/python3', '-c', writeToImage], { cwd: '/' })
        await own.destroy()
        expect(said.toString()).toBe('/usr uncovered\n/opt/glovebox/bin uncovered\n')
      })

      it('shares its ids with no other slot', async () => {
        const other = await createSlot(host)
        const ranges = [slot, other].map(({ pid }) => readFileSync(`/proc/${pid}/uid_map`, 'utf8'))
        await other.destroy()
        expect(ranges[0]).not.toBe(ranges[1])
      })

      it('ends its run as slot_lost when its guest dies, and leaves nothing behind', async () => {
        const doomed = await createSlot(host)
        doomed.bind(testLimits)
        const { ran } = start(doomed, 'bash', 'sleep 1000', { onRunning: () => process.kill(doomed.pid, 'SIGKILL') })
        expect((await ran).ending).toEqual({ kind: 'failed', reason: 'slot_lost' })
        expect(doomed.healthy).toBe(false)
        await doomed.lost
        await doomed.destroy()
      })

      it('ends a run from outside when its guest does not obey', async () => {
        const deaf = await createSlot(host)
        deaf.bind(testLimits)
        const { ran } = start(deaf, 'bash', 'sleep 1000', {
          timeoutMs: 100,
          onRunning: () => process.kill(deaf.pid, 'SIGSTOP'),
        })
        expect((await ran).ending).toEqual({ kind: 'timed_out', limitMs: 100 })
        expect(deaf.healthy).toBe(false)
        await deaf.destroy()
      })

      it('ends its run when it is destroyed, and can be destroyed twice', async () => {
        const short = await createSlot(host)
        short.bind(testLimits)
        const { ran } = start(short, 'bash', 'sleep 1000', { onRunning: () => void short.destroy() })
        expect((await ran).ending.kind).toBe('failed')
        await Promise.all([short.destroy(), short.destroy(), short.lost])
        await expect(async () => start(short, 'bash', 'true')).rejects.toThrow(/destroyed/)
      })

      it('reclaims what a killed instance of the same id left behind', async () => {
        const killed = engineMachine(runtime)
        const script = join(import.meta.dirname, '../../support/engine-dying.ts')
        const child = spawn(process.execPath, [script, JSON.stringify(killed.settings)], {
          stdio: ['ignore', 'pipe', 'inherit'],
        })
        const init = Number(String((await once(child.stdout, 'data'))[0]))
        child.kill('SIGKILL')
        await once(child, 'close')
        const next = await killed.open()
        expect(next.reclaimed).toEqual({ containers: 1, cgroups: 1, idRanges: 1 })
        expect(lives(init)).toBe(false)
        await next.close()
        expect(killed.leftovers()).toEqual([])
        killed.remove()
      })
    })
  }
})

/** Whether a process can still do anything; a zombie cannot. */
function lives(pid: number): boolean {
  return existsSync(`/proc/${pid}`) && !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
}

/** Names of the processes in a slot: those that share the pid namespace of its init, or one below. */
function processesOf(slot: Slot): string[] {
  const slice = readFileSync(`/proc/${slot.pid}/cgroup`, 'utf8')
    .split('\n')
    .find((line) => line.includes(slot.id))
    ?.split(':')[2]
    ?.replace(/\/base$/, '')
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        if (!readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(`${slice}/`)) return []
        return [readFileSync(`/proc/${pid}/comm`, 'utf8').trim()]
      } catch {
        return []
      }
    })
}

/**
 * Makes each place writable in every way available to root, tries it, and continues with the layer below: the overlays of
 * the slot, and what they cover, which is in the working directory. An overlay without an upper directory accepts no write,
 * whatever its flags; the mounts of the image were locked by the runner.
 */
const writeToImage = `
import ctypes, errno, os
libc = ctypes.CDLL(None)
MS_REMOUNT, MS_BIND, MNT_DETACH = 32, 4096, 2

def attack(path):
    for flags in (MS_REMOUNT | MS_BIND, MS_REMOUNT):
        libc.mount(b"none", path, None, flags, None)
        try:
            os.close(os.open(path + b"/written", os.O_CREAT | os.O_WRONLY))
            print("wrote", path.decode())
        except OSError as error:
            if error.errno != errno.EROFS:  # The owner alone would stand in the way.
                print(path.decode(), "could be written:", error)

attack(b"/")
for path in (b"/usr", b"/opt/glovebox/bin"):
    attack(path)
    if libc.umount2(path, MNT_DETACH) == 0:
        print(path.decode(), "uncovered")
        attack(path)
for path in (b"root", b"usr", b"node"):
    attack(path)
`
