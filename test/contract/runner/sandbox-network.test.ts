import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { JailNetwork } from '../../../src/base/network.ts'
import type { SandboxStatus } from '../../../src/base/sandbox.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { execute, type SandboxRunner, sandboxRunner, sandboxSpec } from '../../support/sandbox-runner.ts'

inPrivateMounts(import.meta.filename, () => {
  describe('a sandbox with a network', () => {
    let runner: SandboxRunner
    let port: number
    const web = createServer((request, response) => response.end(request.url))
    beforeAll(async () => {
      await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve))
      port = (web.address() as AddressInfo).port
      runner = await sandboxRunner()
    }, 60_000)
    afterAll(async () => {
      web.close()
      expect(await runner.close()).toEqual([])
    })

    const started = async (rules?: readonly string[]) => {
      const limits = { connections: 100, bytes: 0, bytesPerSecond: 0 }
      const network = rules && ({ policy: 'allow', rules, limits } satisfies JailNetwork)
      const spec = sandboxSpec(network ? { network } : {})
      await runner.client.sandboxes.start(spec)
      return {
        run: async (command: string) =>
          (await execute(runner.client, spec.sandboxId, ['bash', '-c', `${command} 2>&1`])).stdout,
        id: spec.sandboxId,
        stop: () => runner.client.sandboxes.stop(spec.sandboxId, 0),
      }
    }

    it('reaches what its policy allows, through the proxy and without it, in every process', async () => {
      const sandbox = await started([`localhost:${port}`, `127.0.0.1:${port}`, 'example.com'])
      for (const path of ['/1', '/2'])
        expect(await sandbox.run(`curl -sS --noproxy '' http://localhost:${port}${path}`)).toBe(path)
      expect(await sandbox.run('curl -sS http://other.example')).toContain('other.example:80 is not listed')
      expect(await sandbox.run('getent hosts other.example || echo unknown')).toBe('unknown\n')
      expect(await sandbox.run('curl -sS -m 5 --noproxy "*" http://192.0.2.1')).toMatch(
        /reset by peer|Failed to connect/,
      )
      await sandbox.stop()
    })

    it('reports its connections once when it has ended, also to a front that connects later', async () => {
      const use = async () => {
        const sandbox = await started([`127.0.0.1:${port}`])
        await sandbox.run(`curl -sS --noproxy '' http://127.0.0.1:${port}/ http://other.example/`)
        return sandbox
      }
      const endOf = async (changes: AsyncIterable<SandboxStatus>, id: string) => {
        for await (const status of changes)
          if (status.sandboxId === id && status.state.kind === 'stopped') return status
        return undefined
      }
      const uses = [
        expect.objectContaining({ host: '127.0.0.1', port, verdict: 'allowed', connections: 1 }),
        expect.objectContaining({ host: 'other.example', verdict: 'refused_destination', connections: 1 }),
      ]
      const network = { keyId: 'key_a', uses: expect.arrayContaining(uses) }
      const unread = await use()
      await unread.stop()
      const later = await runner.connect()
      expect(await endOf(later.sandboxes.changes(), unread.id)).toMatchObject({ network })

      const read = await use()
      const [first, latest] = [later.sandboxes.changes(), runner.client.sandboxes.changes()]
      const ends = [endOf(first, read.id), endOf(latest, read.id)]
      // Both follow when this is answered.
      await Promise.all([later.sandboxes.list(), runner.client.sandboxes.list()])
      await read.stop()
      const found = (await Promise.all(ends)).filter((status) => status?.network)
      expect(found).toMatchObject([{ network }])
      await later.close()
    })

    it('has none without a policy', async () => {
      const sandbox = await started()
      expect(await sandbox.run(`curl -sS -m 5 -x http://127.0.0.1:3128 http://localhost:${port}`)).toContain(
        'Failed to connect',
      )
      expect(await sandbox.run('curl -sS -m 5 http://192.0.2.1')).toContain("Couldn't connect")
      await sandbox.stop()
    })
  })
})
