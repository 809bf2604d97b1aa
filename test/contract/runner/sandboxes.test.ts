import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { SandboxSpec } from '../../../src/base/sandbox.ts'
import type { RunnerClient } from '../../../src/runner/client/client.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { processesWith } from '../../support/processes.ts'
import {
  execute,
  follow,
  loopDevicesOf,
  type SandboxRunner,
  sandboxRunner,
  sandboxSpec,
} from '../../support/sandbox-runner.ts'

const mib = 1024 * 1024

inPrivateMounts(import.meta.filename, () => {
  describe('the sandboxes of a runner', () => {
    let runner: SandboxRunner
    let client: RunnerClient
    let spec: SandboxSpec
    let id: string

    beforeAll(async () => {
      runner = await sandboxRunner({ slotsReady: 0, idleMemoryMs: 500 })
      client = runner.client
      spec = sandboxSpec({ env: { GIVEN: 'yes' } })
      id = spec.sandboxId
      await client.sandboxes.start(spec)
    }, 120_000)
    afterAll(async () => {
      expect(await runner.close()).toEqual([])
      expect(loopDevicesOf(runner.storageDir)).toEqual([])
    })

    it('execute commands with exact arguments, variables and directories, without a shell', async () => {
      const odd = ['a b', '$HOME', "'", '*', '\n', '', 'é']
      expect(await execute(client, id, ['printf', '%s|', ...odd])).toMatchObject({
        ending: { kind: 'exited', code: 0 },
        stdout: `${odd.join('|')}|`,
      })
      const script = 'id -un; pwd; echo $HOME $GIVEN $OWN; exit 3'
      expect(await execute(client, id, ['bash', '-c', script], { env: { OWN: '1' }, cwd: '/tmp' })).toMatchObject({
        ending: { kind: 'exited', code: 3 },
        stdout: 'baponi\n/tmp\n/home/baponi yes 1\n',
      })
      expect((await execute(client, id, ['bash', '-c', 'kill -TERM $$'])).ending).toEqual({
        kind: 'signaled',
        signal: 'TERM',
      })
    })

    it('say why a process was not started', async () => {
      for (const [argv, more, reason] of [
        [['no-such-program'], {}, /^no-such-program: No such file/],
        [['true'], { cwd: '/nowhere' }, /^enter \/nowhere: No such file/],
        [['true'], { user: 'nobody-else' }, /^the user nobody-else: /],
        [['/etc/passwd'], {}, /^\/etc\/passwd: Permission denied/],
      ] as const)
        expect((await execute(client, id, argv, more)).ending).toEqual({
          kind: 'not_started',
          reason: expect.stringMatching(reason),
        })
      await expect(client.sandboxes.processes.start(id, { argv: ['a\0b'] })).rejects.toMatchObject({
        code: 'invalid_argument',
      })
      await expect(client.sandboxes.processes.start('sbx_none', { argv: ['true'] })).rejects.toMatchObject({
        code: 'sandbox_not_running',
      })
      await expect(client.sandboxes.processes.signal(id, 999_999, 9, 'one')).rejects.toMatchObject({
        code: 'process_unknown',
      })
    })

    it('feed standard input and the channel, and keep what the channel says until it is read', async () => {
      const { processes } = client.sandboxes
      const { processId } = await processes.start(id, { argv: ['wc', '-c'], stdin: true })
      await processes.write(id, processId, 'stdin', Buffer.alloc(300_000, 'x'))
      await processes.close(id, processId, 'stdin')
      expect((await follow(client, id, processId)).stdout).toBe('300000\n')
      const echo = 'import os\nfor _ in range(3): os.write(3, os.read(3, 100))\nos.write(3, b"." * 600000)'
      const talking = await processes.start(id, { argv: ['python3', '-c', echo], channel: true })
      for (const word of ['one', 'two', 'six']) {
        await processes.write(id, talking.processId, 'channel', Buffer.from(word))
        // Separate reads of the program: each answer is awaited.
        for await (const event of processes.attach(id, talking.processId, 0))
          if (event.kind === 'output' && Buffer.from(event.bytes).toString().endsWith(word)) break
      }
      const said = await follow(client, id, talking.processId)
      expect([said.channel.length, said.channel.slice(0, 9)]).toEqual([600_009, 'onetwosix'])
    })

    it('give a process a terminal, with its size', async () => {
      const { processes } = client.sandboxes
      const { processId } = await processes.start(id, {
        argv: ['bash', '-c', 'trap "stty size; exit" WINCH; stty size; while :; do sleep 0.05; done'],
        terminal: { columns: 100, rows: 30 },
      })
      let text = ''
      for await (const event of processes.attach(id, processId, 0)) {
        if (event.kind === 'output') text += Buffer.from(event.bytes).toString()
        if (text === '30 100\r\n') await processes.resize(id, processId, { columns: 90, rows: 20 })
      }
      expect(text).toBe('30 100\r\n20 90\r\n')
    })

    it('signal a group or a process, and end a process with its group after its time', async () => {
      const { processes } = client.sandboxes
      const script = 'trap "" TERM; sleep 1000 & echo ready; wait; echo after; exec sleep 1000'
      const { processId } = await processes.start(id, { argv: ['bash', '-c', script] })
      for await (const event of processes.attach(id, processId, 0)) if (event.kind === 'output') break
      await processes.signal(id, processId, 9, 'group')
      expect((await follow(client, id, processId)).ending).toEqual({ kind: 'signaled', signal: 'KILL' })
      expect((await execute(client, id, ['sleep', '1000'], { timeoutMs: 200 })).ending).toEqual({
        kind: 'timed_out',
        limitMs: 200,
      })
    })

    it('deliver their ending to every reader, whatever its cursor', async () => {
      const { events } = await execute(client, id, ['printf', 'four'])
      const ending = { kind: 'exited', code: 0 }
      const { processes } = client.sandboxes
      const last = (await processes.list(id)).at(-1)!.processId
      for (const cursor of [events.at(-1)!.seq, 1_000_000, Number.MAX_SAFE_INTEGER])
        expect(await follow(client, id, last, cursor), `${cursor}`).toMatchObject({ ending, stdout: '' })
      // One that waits since before the end.
      const { processId } = await processes.start(id, { argv: ['cat'], stdin: true })
      const following = follow(client, id, processId, 1_000_000)
      await processes.list(id)
      await processes.write(id, processId, 'stdin', Buffer.from('new'))
      await processes.close(id, processId, 'stdin')
      expect(await following).toMatchObject({ ending, stdout: 'new' })
    })

    it('deliver all output to a reader, and a gap to one that comes too late', async () => {
      const loud = ['head', '-c', '20000000', '/dev/zero']
      const { events, stdout } = await execute(client, id, loud)
      expect([stdout.length, events.some(({ kind }) => kind === 'gap')]).toEqual([20_000_000, false])
      const { processId } = await client.sandboxes.processes.start(id, { argv: loud, keepBytes: 65_536 })
      while ((await client.sandboxes.processes.list(id)).some((p) => p.processId === processId && !p.ending))
        await execute(client, id, ['true'])
      const late = await follow(client, id, processId)
      const missing = late.events.reduce((sum, event) => sum + (event.kind === 'gap' ? event.bytes : 0), 0)
      expect(missing).toBeGreaterThan(19_000_000)
      expect(missing + late.stdout.length).toBe(20_000_000)
    })

    it('end a process for memory and go on', async () => {
      const hog = 'b = []\nwhile True: b.append(bytearray(1 << 24))'
      expect((await execute(client, id, ['python3', '-c', hog])).ending).toEqual({
        kind: 'out_of_memory',
        limitBytes: spec.limits.memoryBytes,
      })
      expect((await execute(client, id, ['echo', 'alive'])).stdout).toBe('alive\n')
    })

    it('stand still while they are paused', async () => {
      const { processes } = client.sandboxes
      const { processId } = await processes.start(id, { argv: ['bash', '-c', 'while :; do :; done'] })
      await client.sandboxes.pause(id)
      const before = await client.sandboxes.figures([id])
      await expect(processes.start(id, { argv: ['true'] })).rejects.toMatchObject({ code: 'sandbox_not_running' })
      expect(await client.sandboxes.list()).toMatchObject([{ sandboxId: id, state: { kind: 'paused' } }])
      const after = await client.sandboxes.figures([id])
      expect(after[0]?.cpuSeconds).toBe(before[0]?.cpuSeconds)
      await client.sandboxes.resume(id)
      await processes.signal(id, processId, 9, 'group')
      expect((await follow(client, id, processId)).ending).toMatchObject({ kind: 'signaled' })
    })

    it('give back the pages of files that they wrote or read, when they are idle or paused', async () => {
      const own = sandboxSpec()
      await client.sandboxes.start(own)
      const { processes } = client.sandboxes
      const holdsLess = () =>
        expect.poll(() => runner.heldBytes(), { timeout: 10_000 }).toBeLessThan(heldBefore + 10 * mib)
      const heldBefore = runner.heldBytes()
      const script = 'head -c 30000000 /dev/zero >large; sync; cat large >/dev/null; echo ready; while :; do :; done'
      const fill = async () => {
        const { processId } = await processes.start(own.sandboxId, { argv: ['sh', '-c', script] })
        for await (const event of processes.attach(own.sandboxId, processId, 0)) if (event.kind === 'output') break
        return processId
      }
      await processes.signal(own.sandboxId, await fill(), 9, 'group')
      await holdsLess()
      await fill()
      await client.sandboxes.pause(own.sandboxId)
      await holdsLess()
      await client.sandboxes.resume(own.sandboxId)
      expect((await execute(client, own.sandboxId, ['sh', '-c', 'wc -c <large'])).stdout).toBe('30000000\n')
      await client.sandboxes.remove('org_a', own.sandboxId)
    })

    it('let root change the image for this sandbox alone, with the capabilities that it has and no others', async () => {
      const root = { user: 'root' }
      expect((await execute(client, id, ['grep', 'CapEff', '/proc/self/status'], root)).stdout).toMatch(
        /00000000000004fb/,
      )
      expect((await execute(client, id, ['grep', 'CapEff', '/proc/self/status'])).stdout).toMatch(/0000000000000000/)
      const change = 'echo "#!/bin/sh\necho mine" > /usr/bin/own && chmod 755 /usr/bin/own && rm /usr/bin/wc && own'
      expect((await execute(client, id, ['sh', '-c', change], root)).stdout).toBe('mine\n')
      for (const attack of ['mount -t tmpfs x /mnt', 'chroot / true', 'mknod /tmp/d c 1 1', 'unshare -U true'])
        expect((await execute(client, id, ['sh', '-c', attack], root)).ending, attack).not.toMatchObject({ code: 0 })
      // Its init takes no signal from inside.
      expect((await execute(client, id, ['sh', '-c', 'kill -9 1; echo $?'], root)).stdout).toBe('0\n')
      const other = sandboxSpec()
      await client.sandboxes.start(other)
      expect((await execute(client, other.sandboxId, ['which', 'wc', 'own'])).stdout).toBe('/usr/bin/wc\n')
      await client.sandboxes.remove('org_a', other.sandboxId)
    })

    it('are crashed when their slot is lost, and keep their disk then and when the runner restarts', async () => {
      const lost = sandboxSpec()
      const forever = `1000.${process.pid}`
      await client.sandboxes.start(lost)
      await execute(client, lost.sandboxId, ['sh', '-c', 'echo kept > file'])
      const { processId } = await client.sandboxes.processes.start(lost.sandboxId, { argv: ['sleep', forever] })
      const ended = follow(client, lost.sandboxId, processId)
      const changes = client.sandboxes.changes()
      const [pid] = processesWith(forever)
      process.kill(runner.guestOf(pid!), 'SIGKILL')
      for await (const { sandboxId, state } of changes) {
        if (sandboxId === lost.sandboxId && state.kind === 'crashed') {
          expect(state).toEqual({ kind: 'crashed', reason: 'slot_lost' })
          break
        }
      }
      expect((await ended).ending).toEqual({ kind: 'sandbox_ended' })
      await expect(execute(client, lost.sandboxId, ['true'])).rejects.toMatchObject({ code: 'sandbox_not_running' })
      const cat = async () => (await execute(client, lost.sandboxId, ['cat', 'file'])).stdout
      await client.sandboxes.start(lost)
      expect(await cat()).toBe('kept\n')
      await runner.restart()
      expect(await client.sandboxes.list()).toEqual([])
      await client.sandboxes.start(lost)
      expect(await cat()).toBe('kept\n')
      await client.sandboxes.remove('org_a', lost.sandboxId)
      await client.sandboxes.start(spec)
    })

    it('leave nothing of themselves when they are started and removed again and again', async () => {
      for (let round = 0; round < 6; round++) {
        const specs = [sandboxSpec(), sandboxSpec()]
        await Promise.all(specs.map((each) => client.sandboxes.start(each)))
        for (const { sandboxId } of specs) expect((await execute(client, sandboxId, ['echo', 'x'])).stdout).toBe('x\n')
        await Promise.all(specs.map(({ sandboxId }) => client.sandboxes.remove('org_a', sandboxId)))
      }
      expect(loopDevicesOf(runner.storageDir)).toHaveLength(1)
    })

    it('go on when a front ends, keep their disk when they stop, and lose it when they are removed', async () => {
      const front = await runner.connect()
      const { processId } = await front.sandboxes.processes.start(id, { argv: ['bash', '-c', 'sleep 0.3; echo late'] })
      await front.close()
      expect((await follow(client, id, processId)).stdout).toBe('late\n')
      await execute(client, id, ['sh', '-c', 'echo kept > file'])
      const changes = client.sandboxes.changes()
      await client.sandboxes.stop(id, 1_000)
      const kinds: string[] = []
      for await (const { state } of changes) {
        kinds.push(state.kind)
        if (state.kind === 'stopped') break
      }
      expect(kinds).toEqual(['stopping', 'stopped'])
      await client.sandboxes.start(spec)
      expect((await execute(client, id, ['cat', 'file'])).stdout).toBe('kept\n')
      expect(await client.sandboxes.remove('org_b', id)).toBe(false)
      expect(await client.sandboxes.remove('org_a', id)).toBe(true)
      expect(await client.sandboxes.remove('org_a', id)).toBe(false)
      await client.sandboxes.start(spec)
      expect((await execute(client, id, ['cat', 'file'])).ending).toEqual({ kind: 'exited', code: 1 })
    })
  })
})
