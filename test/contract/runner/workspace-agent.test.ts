import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { WorkspaceAgent } from '../../../src/core/workspaces/agent.ts'
import { agentCommand } from '../../../src/core/workspaces/agent-program.ts'
import { SandboxAgents } from '../../../src/core/workspaces/sandbox-agents.ts'
import { type TestAgent, testAgent } from '../../support/agent-process.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { type SandboxRunner, sandboxRunner, sandboxSpec } from '../../support/sandbox-runner.ts'

inPrivateMounts(import.meta.filename, () => {
  describe('the agent of a workspace in a sandbox', () => {
    const spec = sandboxSpec()
    let runner: SandboxRunner
    let agents: SandboxAgents
    let agent: TestAgent

    const start = async (from = agents, directory?: string) =>
      testAgent(
        await WorkspaceAgent.start(await from.start(runner.client.sandboxes.processes, spec.sandboxId, directory)),
      )
    const running = async () =>
      (await runner.client.sandboxes.processes.list(spec.sandboxId)).filter(({ ending }) => ending === undefined)

    beforeAll(async () => {
      runner = await sandboxRunner()
      await runner.client.sandboxes.start(spec)
      agents = new SandboxAgents()
      agent = await start()
    }, 60_000)
    afterAll(async () => {
      await runner.client.sandboxes.stop(spec.sandboxId, 0)
      expect(await runner.close()).toEqual([])
    })

    it('reads, edits, searches and runs programs as the user of the sandbox', async () => {
      await agent.ok('write', { file_path: 'src/a.py', content: 'def f():\n    return 1\n' })
      await agent.ok('edit', { file_path: 'src/a.py', edits: [{ old_string: '1', new_string: '2' }] })
      expect(await agent.ok('read', { file_path: 'src/a.py' })).toEqual({ text: '1\tdef f():\n2\t    return 2\n' })
      expect(await agent.ok('glob', { pattern: '*.py' })).toMatchObject({ files: ['src/a.py'] })
      expect(await agent.ok('grep', { pattern: 'return' })).toMatchObject({ lines: ['src/a.py:2:    return 2'] })
      await agent.ok('bash', { command: 'cd src; export A=1', timeout: 10 })
      expect(await agent.ok('bash', { command: 'pwd; id -un; echo $A', timeout: 10 })).toMatchObject({
        text: '/home/baponi/src\nbaponi\n1\n',
        exit: 0,
      })
      expect(await agent.ok('bash', { command: 'sleep 60', timeout: 1 })).toMatchObject({ timed_out: true })
    })

    it('keeps snapshots', async () => {
      await agent.ok('snapshot_create', { name: 's' })
      await agent.ok('write', { file_path: 'b.txt', content: 'b' })
      expect(await agent.ok('snapshot_diff', { name: 's' })).toMatchObject({
        summary: expect.stringMatching(/1 file changed/),
      })
      await agent.ok('snapshot_restore', { name: 's' })
      expect(await agent.refused('read', { file_path: 'b.txt' })).toMatch(/path not found/)
    })

    it('returns images of several megabytes', async () => {
      await agent.ok('bash', {
        command: 'cd; printf "\\x89PNG\\r\\n\\x1a\\n" > big.png; head -c 5000000 /dev/urandom >> big.png',
        timeout: 20,
      })
      const { image } = await agent.ok<{ image: string }>('read', { file_path: 'big.png' })
      expect(Buffer.from(image, 'base64')).toHaveLength(5_000_008)
    })

    it('ends with everything that it has started when it is closed', async () => {
      const other = await start(agents, '/tmp')
      await other.ok('start', { command: 'exec sleep 71' })
      expect((await other.ok<{ text: string }>('bash', { command: 'pwd; pgrep -xc sleep', timeout: 5 })).text).toBe(
        '/tmp\n1\n',
      )
      await other.agent.close()
      await expect
        .poll(async () => (await agent.ok<{ text: string }>('bash', { command: 'pgrep -xc sleep', timeout: 5 })).text)
        .toBe('0\n')
    })

    it('of an earlier front is ended by the next one', async () => {
      await agent.ok('start', { command: 'exec sleep 72' })
      const next = await start(new SandboxAgents())
      expect((await next.ok<{ text: string }>('bash', { command: 'pgrep -xc sleep', timeout: 5 })).text).toBe('0\n')
      await expect.poll(() => agent.agent.isOpen).toBe(false)
      expect((await running()).map(({ argv }) => argv)).toEqual([agentCommand('.')])
      agent = next
    })

    it('is refused in a directory that does not exist', async () => {
      await expect(start(agents, '/missing')).rejects.toMatchObject({ code: 'workspace_failed' })
    })

    it('that is killed fails its calls, and that of a stopped sandbox ends', async () => {
      await expect(agent.ok('bash', { command: 'kill -9 $PPID; sleep 5', timeout: 20 })).rejects.toMatchObject({
        code: 'workspace_failed',
      })
      expect(agent.agent.isOpen).toBe(false)
      const next = await start()
      await runner.client.sandboxes.stop(spec.sandboxId, 0)
      await expect.poll(() => next.agent.isOpen).toBe(false)
      await runner.client.sandboxes.start(spec)
      expect(await (await start()).ok('read', { file_path: 'src/a.py' })).toMatchObject({
        text: expect.stringMatching(/return 2/),
      })
    })
  })
})
