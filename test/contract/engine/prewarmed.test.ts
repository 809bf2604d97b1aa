import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { findPreloadProblem } from '../../../src/engine/jails/preload.ts'
import type { Machine } from '../../../src/engine/machine.ts'
import { createSlot } from '../../../src/engine/slots/create-slot.ts'
import type { Slot } from '../../../src/engine/slots/slot.ts'
import {
  type EngineMachine,
  engineMachine,
  installed,
  prewarm,
  specOf,
  start,
  testLimits,
} from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'

/** Outside the jail when the host forked it, the init of the jail when it was started. */
const parent = 'import os\nprint(os.getppid())\n'
const [hosted, fresh] = ['0\n', '1\n']

inPrivateMounts(import.meta.filename, () => {
  for (const runtime of ['crun', 'runc'] as const) {
    describe.skipIf(!installed(runtime))(`a prewarmed run in a slot of ${runtime}`, () => {
      let machine: EngineMachine
      let host: Machine
      let slot: Slot
      const runs = (...words: Parameters<typeof start> extends [Slot, ...infer Rest] ? Rest : never) =>
        start(slot, ...words).ran

      beforeAll(async () => {
        machine = engineMachine(runtime)
        host = await machine.open()
      })
      beforeEach(async () => {
        if (slot?.healthy) return
        await slot?.destroy()
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

      const processes = () =>
        readFileSync(`/proc/${slot.pid}/task/${slot.pid}/children`, 'utf8')
          .split(' ')
          .filter(Boolean)
          .map((pid) => ({ pid: Number(pid), name: readFileSync(`/proc/${pid}/comm`, 'utf8').trim() }))
      const hostPid = () => processes().find(({ name }) => name === 'python3')!.pid

      it('draws its own random numbers', async () => {
        const code =
          'import os, random, secrets, uuid, tempfile\nprint(os.getpid(), random.random(), secrets.token_hex(8), uuid.uuid4(), tempfile.mkstemp()[1])'
        const seen: string[] = []
        for (let times = 0; times < 3; times++) {
          await prewarm(slot, 'python')
          seen.push((await runs('python', code)).stdout)
        }
        expect(new Set(seen).size).toBe(3)
        for (const at of [1, 2, 3, 4]) expect(new Set(seen.map((line) => line.split(' ')[at])).size, `${at}`).toBe(3)
      })

      it('has the variables of its call, and none of the previous run', async () => {
        await prewarm(slot, 'python')
        const secret = { SECRET: 'of the first', TZ: 'Asia/Tokyo' }
        const first = await runs(
          'python',
          'import os, time\nopen("kept", "w")\nimport json\nx = 1\nprint(os.getppid(), os.environ["SECRET"], time.tzname)',
          { env: secret },
        )
        expect(first.stdout).toBe("0 of the first ('JST', 'JST')\n")
        await prewarm(slot, 'python')
        const second = await runs(
          'python',
          'import os, sys\nprint(os.getppid(), os.environ.get("SECRET"), os.listdir("."), "json" in sys.modules, "x" in globals())',
        )
        expect(second.stdout).toBe('0 None [] False False\n')
      })

      it('has its own interpreter when variables are read early, and takes standard input', async () => {
        await prewarm(slot, 'python')
        expect((await runs('python', parent)).stdout).toBe(hosted)
        for (const env of [{ PYTHONHASHSEED: '0' }, { LC_ALL: 'C' }, { OMP_NUM_THREADS: '4' }]) {
          await prewarm(slot, 'python')
          expect((await runs('python', parent, { env })).stdout).toBe(fresh)
        }
        await prewarm(slot, 'python')
        expect((await runs('python', `${parent}print(input())`, { stdin: 'said' })).stdout).toBe(`${hosted}said\n`)
        await prewarm(slot, 'node', { A: '1' })
        expect((await runs('node', 'console.log(process.env.A)', { env: { A: '2' } })).stdout).toBe('2\n')
      })

      it('is discarded for another language', async () => {
        for (const [ready, language, code] of [
          ['python', 'bash', 'echo $((1+1))'],
          ['node', 'python', 'print(2)'],
          ['python', 'node', 'console.log(2)'],
        ] as const) {
          await prewarm(slot, ready)
          expect((await runs(language, code)).stdout).toBe('2\n')
        }
        expect(slot.healthy).toBe(true)
      })

      it('can start while it is being prepared', async () => {
        for (let times = 0; times < 10; times++) {
          await prewarm(slot, 'python')
          await runs('python', '')
          slot.prewarm(specOf('python'))
          expect((await runs('python', parent)).stdout).toBe(hosted)
        }
      })

      it('ends as usual on timeout, cancellation, and exceeded memory or output', async () => {
        const endings: [string, string, object?][] = [
          ['timed_out', 'import time\nprint("a", flush=True)\ntime.sleep(100)', { timeoutMs: 200 }],
          ['out_of_memory', 'x = bytearray(10**9)'],
          ['output_limit', 'import os\nwhile True: os.write(1, b"x" * 60000)'],
          ['signaled', 'import os\nos.kill(os.getpid(), 9)'],
        ]
        for (const [kind, code, options] of endings) {
          await prewarm(slot, 'python')
          expect((await runs('python', code, options)).ending.kind).toBe(kind)
        }
        await prewarm(slot, 'python')
        const { run, ran } = start(slot, 'python', 'import time; time.sleep(100)', {
          onRunning: () => run.stop('cancelled'),
        })
        expect((await ran).ending.kind).toBe('cancelled')
        expect(slot.healthy).toBe(true)
      })

      it('can be cancelled before it is ready', async () => {
        await prewarm(slot, 'python')
        await runs('python', '')
        slot.prewarm(specOf('python'))
        const { run, ran } = start(slot, 'python', parent)
        run.stop('cancelled')
        expect(await ran).toMatchObject({ ending: { kind: 'cancelled' }, stdout: '' })
        expect((await runs('python', parent)).ending).toEqual({ kind: 'exited', code: 0 })
      })

      it('is charged only for its own time and memory', async () => {
        await prewarm(slot, 'python')
        const large = await runs('python', 'x = bytearray(60 * 1024**2)\nfor _ in range(10**6): pass')
        await prewarm(slot, 'python')
        const small = await runs('python', '')
        expect(large.memoryPeakBytes).toBeGreaterThan(60 * 1024 ** 2)
        expect(small.memoryPeakBytes).toBeLessThan(24 * 1024 ** 2)
        expect(small.cpuTimeMs).toBeLessThan(large.cpuTimeMs)
      })

      it('survives a fork bomb in the previous run, as does the host', async () => {
        await prewarm(slot, 'python')
        const pid = hostPid()
        await runs('python', 'import os\nwhile True:\n    try: os.fork()\n    except OSError: pass', { timeoutMs: 400 })
        await prewarm(slot, 'python')
        expect((await runs('python', parent)).stdout).toBe(hosted)
        expect(hostPid()).toBe(pid)
      })

      it('has the modules that its profile preloads, and a module that fails is reported before any run', async () => {
        const preload = ['json.tool', 'decimal']
        const other = await createSlot(host)
        other.bind(testLimits)
        other.prewarm({ ...specOf('python'), preload })
        while (other.prewarmed !== 'ready' && other.healthy) await new Promise((resolve) => setTimeout(resolve, 5))
        const code = 'import sys\nprint("json.tool" in sys.modules, "decimal" in sys.modules, "csv" in sys.modules)'
        expect((await start(other, 'python', code).ran).stdout).toBe('True True False\n')
        await other.destroy()
        expect(await findPreloadProblem(host, preload)).toBeUndefined()
        expect(await findPreloadProblem(host, ['json', 'no_such'])).toBe(
          "import no_such: ModuleNotFoundError: No module named 'no_such'",
        )
      })

      it('runs without its host, in a slot that is then degraded', async () => {
        await prewarm(slot, 'python')
        process.kill(hostPid(), 'SIGKILL')
        const ran = await runs('python', `${parent}print("lives")`)
        expect(ran.ending).toEqual({ kind: 'exited', code: 0 })
        expect(ran.stdout).toContain('lives')
        expect((await runs('python', parent)).stdout).toBe(fresh)
        expect([slot.healthy, slot.degraded]).toEqual([true, true])
        await slot.destroy()
      })

      it('is answered immediately when its host dies before the fork', async () => {
        await prewarm(slot, 'python')
        await runs('python', '')
        process.kill(hostPid(), 'SIGSTOP')
        slot.prewarm(specOf('python'))
        const { ran } = start(slot, 'python', parent)
        // Long enough that the host is asked to fork on most machines; if it dies before, that is detected.
        await new Promise((resolve) => setTimeout(resolve, 100))
        process.kill(hostPid(), 'SIGKILL')
        expect((await ran).ending).toEqual({ kind: 'failed', reason: 'slot_lost' })
        expect(slot.unhealthyReason).toMatch(/the zygote died|ask the zygote/)
      })

      it('is answered when its host cannot fork', async () => {
        await prewarm(slot, 'python')
        await runs('python', '')
        execFileSync('prlimit', ['--pid', `${hostPid()}`, '--nproc=0:0'])
        slot.prewarm(specOf('python'))
        expect((await runs('python', parent)).ending).toEqual({ kind: 'failed', reason: 'slot_lost' })
        expect(slot.unhealthyReason).toMatch(/the zygote died: fork for a run: Resource temporarily unavailable/)
      })

      it('is answered when the waiting process was killed, and its slot is discarded', async () => {
        await prewarm(slot, 'python')
        const before = slot.unhealthyReason
        const waiting = readFileSync(`/proc/${hostPid()}/task/${hostPid()}/children`, 'utf8').trim()
        process.kill(Number(waiting), 'SIGKILL')
        for (let times = 0; slot.healthy && times < 500; times++)
          await new Promise((resolve) => setTimeout(resolve, 10))
        expect([before, slot.unhealthyReason]).toEqual([undefined, expect.stringContaining('prewarmed')])
      })
    })
  }
})
