/** Promise 53: what the server keeps for a sandbox is limited for it, and charged to it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openKernels } from '../../src/core/sandboxes/kernels/kernels.ts'
import type { RunnerClient } from '../../src/runner/client/client.ts'
import { callIn } from '../support/kernel-calls.ts'
import { inPrivateMounts } from '../support/private-mounts.ts'
import {
  execute,
  follow,
  loopDevicesOf,
  type SandboxRunner,
  sandboxRunner,
  sandboxSpec,
} from '../support/sandbox-runner.ts'

const mib = 1024 * 1024

inPrivateMounts(import.meta.filename, () => {
  describe('a named sandbox', () => {
    let runner: SandboxRunner
    let client: RunnerClient

    beforeAll(async () => {
      runner = await sandboxRunner({ slotsReady: 0 })
      client = runner.client
    }, 120_000)
    afterAll(async () => {
      expect(await runner.close()).toEqual([])
      expect(loopDevicesOf(runner.storageDir)).toEqual([])
    })

    it('does not make the server keep input that its programs do not read', async () => {
      const { processes } = client.sandboxes
      const hostile = sandboxSpec()
      const neighbour = sandboxSpec({ orgId: 'org_b', keyId: 'key_b' })
      for (const spec of [hostile, neighbour]) await client.sandboxes.start(spec)
      const leaving = new AbortController()
      const unread = (await processes.start(hostile.sandboxId, { argv: ['sleep', '600'], stdin: true })).processId
      const answers: string[] = []
      const write = (bytes: number, times: number) =>
        Array.from({ length: times }, () =>
          processes.write(hostile.sandboxId, unread, 'stdin', Buffer.alloc(bytes), leaving.signal).then(
            () => answers.push('left'),
            ({ code }: { code: string }) => answers.push(code),
          ),
        )
      const refused = () => answers.filter((answer) => answer === 'input_full').length
      const large = write(mib, 100)
      await expect.poll(refused, { timeout: 30_000 }).toBeGreaterThan(50)
      // Small ones count as well: each is a request that waits.
      const small = write(1, 100)
      await expect.poll(refused, { timeout: 30_000 }).toBeGreaterThan(150)
      expect(new Set(answers)).toEqual(new Set(['input_full']))
      // As clients that disconnect: they wait no longer, and what they sent is held by nothing.
      leaving.abort()
      await Promise.all([...large, ...small])
      expect(new Set(answers)).toEqual(new Set(['input_full', 'left']))
      const { processId } = await processes.start(neighbour.sandboxId, { argv: ['wc', '-c'], stdin: true })
      await processes.write(neighbour.sandboxId, processId, 'stdin', Buffer.alloc(mib))
      await processes.close(neighbour.sandboxId, processId, 'stdin')
      expect((await follow(client, neighbour.sandboxId, processId)).stdout).toBe(`${mib}\n`)
      for (const spec of [hostile, neighbour]) await client.sandboxes.stop(spec.sandboxId, 0)
    })

    it('says that a tree is too large to be watched', async () => {
      const spec = sandboxSpec({ disk: { bytes: 64 * mib, inodes: 8_192 } })
      await client.sandboxes.start(spec)
      await execute(client, spec.sandboxId, ['bash', '-c', 'mkdir -p many/{1..4200}'])
      await expect(client.sandboxes.files.watch(spec.sandboxId, 'many', true)).rejects.toMatchObject({
        message: expect.stringContaining('4,096 directories'),
      })
      await client.sandboxes.stop(spec.sandboxId, 0)
    })

    it('keeps no more frozen copies of interpreters than leave processes for its programs', async () => {
      const usual = sandboxSpec()
      const spec = { ...usual, limits: { ...usual.limits, pids: 64 } }
      await client.sandboxes.start(spec)
      const kernels = openKernels(client.sandboxes.processes)
      const contexts = [1, 2, 3].map(() => kernels.create(spec.sandboxId, { language: 'python', rewind: 32 }))
      const call = callIn(kernels, spec.sandboxId)
      for (let x = 0; x < 20; x += 1) {
        for (const { id } of await Promise.all(contexts)) await call('python', `x = ${x}`, { context: id })
      }
      for (const { id } of await Promise.all(contexts)) {
        await kernels.rewind(spec.sandboxId, { context: id, calls: 1 })
        expect((await call('python', 'x', { context: id })).result).toBe('18')
      }
      const script = 'ls -d /proc/[0-9]* | wc -l; for i in {1..20}; do sleep 0.1 & done; wait'
      const { ending, stdout } = await execute(client, spec.sandboxId, ['bash', '-c', script])
      expect(ending).toEqual({ kind: 'exited', code: 0 })
      expect(Number(stdout)).toBeLessThanOrEqual(40)
      await client.sandboxes.stop(spec.sandboxId, 0)
    })
  })
})
