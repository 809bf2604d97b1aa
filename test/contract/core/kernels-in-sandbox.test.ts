import { existsSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openKernels } from '../../../src/core/sandboxes/kernels/kernels.ts'
import { type Called, callIn } from '../../support/kernel-calls.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { type SandboxRunner, sandboxRunner, sandboxSpec } from '../../support/sandbox-runner.ts'

const hasMatplotlib = existsSync('/usr/lib/python3/dist-packages/matplotlib')
// Outside of the private mounts, so that the report counts it.
if (!hasMatplotlib) it.skip('kernels in a sandbox show figures: matplotlib is not installed', () => undefined)

inPrivateMounts(import.meta.filename, () => {
  describe('kernels in a sandbox', () => {
    let runner: SandboxRunner
    let call: ReturnType<typeof callIn>
    const spec = sandboxSpec()

    beforeAll(async () => {
      runner = await sandboxRunner()
      await runner.client.sandboxes.start(spec)
      call = callIn(openKernels(runner.client.sandboxes.processes), spec.sandboxId)
    }, 60_000)
    afterAll(async () => {
      expect(await runner.close()).toEqual([])
    })

    it.each([
      ['python', 'import os\nx = 1', 'x + 1, os.getuid()', ({ result }: Called) => result, '(2, 1000)'],
      ['node', 'let x = 1', 'x + 1', ({ result }: Called) => result, '2'],
      ['bash', 'x=1; cd /usr', 'echo $x $PWD', ({ stdout }: Called) => stdout, '1 /usr\n'],
    ] as const)('keep the state of %s', async (language, first, second, seen, expected) => {
      await call(language, first)
      expect(seen(await call(language, second))).toBe(expected)
    })

    it('interrupt code with its subprocesses and keep the state', async () => {
      for (const [language, code] of [
        ['python', 'import subprocess; subprocess.run(["sleep", "60"])'],
        ['node', 'require("child_process").execSync("sleep 60")'],
        ['bash', 'sleep 60'],
      ] as const) {
        const { ended } = await call(language, code, { timeoutMs: 300 })
        expect([language, ended.ending.kind, ended.state]).toEqual([language, 'timed_out', 'kept'])
      }
      expect((await call('bash', 'echo $x; pgrep -x sleep')).stdout).toBe('1\n')
    })

    it.runIf(hasMatplotlib)('show figures as images', async () => {
      const { displays } = await call('python', 'import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()')
      const png = displays[0]?.data['image/png'] as Buffer
      expect(png.subarray(1, 4).toString()).toBe('PNG')
      expect((await call('python', 'plt.get_fignums()')).result).toBe('[]')
    })

    it('say that code used up the memory of the sandbox', async () => {
      const { ended } = await call('python', 'b = bytearray(1 << 40)')
      expect(ended.ending).toMatchObject({ kind: 'raised', name: 'MemoryError' })
    })

    it('keep no more copies than a quarter of the memory of the sandbox holds, the newest ones', async () => {
      const { sandboxId } = sandboxSpec()
      await runner.client.sandboxes.start({ ...spec, sandboxId })
      const kernels = openKernels(runner.client.sandboxes.processes)
      const { id: context } = await kernels.create(sandboxId, { language: 'python', rewind: 8 })
      const python = (code: string) => callIn(kernels, sandboxId)('python', code, { context })
      // Each call changes 12 of 128 MiB, of which each copy then holds the earlier state.
      await python('b = bytearray(12 << 20)')
      for (let n = 1; n <= 6; n++) await python(`n = ${n}; b[:] = bytes([n]) * len(b)`)
      await expect(kernels.rewind(sandboxId, { context, calls: 6 })).rejects.toMatchObject({
        code: 'rewind_unavailable',
      })
      const [figures] = await runner.client.sandboxes.figures([sandboxId])
      expect(figures?.memoryBytes).toBeLessThan(100 << 20)
      await kernels.rewind(sandboxId, { context, calls: 1 })
      expect((await python('n, b[-1]')).result).toBe('(5, 5)')
      await runner.client.sandboxes.remove(spec.orgId, sandboxId)
    })

    it('are found again by a new front', async () => {
      await call('python', 'y = 5')
      const later = callIn(openKernels(runner.client.sandboxes.processes), spec.sandboxId)
      expect((await later('python', 'y')).result).toBe('5')
    })
  })
})
