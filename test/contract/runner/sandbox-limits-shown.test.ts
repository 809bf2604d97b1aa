import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { hasJava, javaLimits } from '../../support/java.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { execute, type SandboxRunner, sandboxRunner, sandboxSpec } from '../../support/sandbox-runner.ts'

const memoryBytes = 192 * 1024 ** 2

inPrivateMounts(import.meta.filename, () => {
  describe('a named sandbox', () => {
    let runner: SandboxRunner
    const spec = sandboxSpec()
    spec.limits = { ...spec.limits, memoryBytes, pids: 64 }
    const bash = async (code: string) => {
      const { stdout, stderr } = await execute(runner.client, spec.sandboxId, ['bash', '-c', code])
      expect(stderr).toBe('')
      return stdout
    }
    beforeAll(async () => {
      runner = await sandboxRunner()
      await runner.client.sandboxes.start(spec)
    }, 120_000)
    afterAll(async () => {
      await runner.client.sandboxes.remove(spec.orgId, spec.sandboxId)
      expect(await runner.close()).toEqual([])
    })

    it('finds its limits in the files of the kernel', async () => {
      expect(await bash('cd /sys/fs/cgroup && cat memory.max cpu.max pids.max; nproc')).toBe(
        `${memoryBytes}\n100000 100000\n64\n1\n`,
      )
      expect(await bash('free -b | awk \'$1 == "Mem:" { print $2 }\'')).toBe(`${memoryBytes}\n`)
    })

    it.skipIf(!hasJava)('has a heap in a Java virtual machine that is sized by its memory', async () => {
      expect(await bash(javaLimits)).toBe(`${memoryBytes / 2}\n1\n${memoryBytes} ${memoryBytes - 4096}\n`)
    })
  })
})
