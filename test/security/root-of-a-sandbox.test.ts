/** Promise 41: root of a named sandbox is held by the promises about runs. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ProcessSpec, SandboxLimits, SandboxSpec } from '../../src/base/sandbox.ts'
import type { RunnerClient } from '../../src/runner/client/client.ts'
import { compile, outside, plain } from '../support/attacks.ts'
import { expectedAnswers, toAnswers } from '../support/call-answers.ts'
import { bounded, counted, fillAll, heldBytes, sockets, uncharged } from '../support/limit-attacks.ts'
import { lookAround, lookAroundPath, machineFacts, type Seen, shownOfProc, shownOfSys } from '../support/look-around.ts'
import { inPrivateMounts } from '../support/private-mounts.ts'
import { processesWith } from '../support/processes.ts'
import {
  type Executed,
  execute,
  follow,
  loopDevicesOf,
  type SandboxRunner,
  sandboxRunner,
  sandboxSpec,
} from '../support/sandbox-runner.ts'

const mib = 1024 * 1024

/** What root may do with its own processes and files. A lower score only makes its init the first to be killed. */
const allowedToRoot = ['setuid_root', 'setresuid_root', 'setgid_root', 'setgroups_root', 'chown_to_root'].concat(
  'write_init_score',
)

/** Writes the program from standard input to a file and executes it. */
const becomeInput = 'cat >/tmp/attack && chmod 700 /tmp/attack && exec /tmp/attack "$@" </dev/null'

/** Leaves what another sandbox could find: files, an abstract and a TCP socket. */
const leave = (canary: string) => `
import os, socket, time
for at in ['/tmp', '/dev/shm', '/run', '/usr/bin', '/', '/workspace']:
    os.makedirs(at, exist_ok=True)
    open(os.path.join(at, '${canary}'), 'w').write('${canary}')
one = socket.socket(socket.AF_UNIX); one.bind('\\0${canary}'); one.listen()
two = socket.socket(); two.bind(('127.0.0.1', 7777)); two.listen()
print('ready', flush=True)
time.sleep(600)
`

inPrivateMounts(import.meta.filename, () => {
  describe('root of a named sandbox', () => {
    const canary = `glovebox-canary-${randomBytes(4).toString('hex')}`
    let runner: SandboxRunner
    let client: RunnerClient
    let neighbour: SandboxSpec

    beforeAll(async () => {
      runner = await sandboxRunner({ slotsReady: 1 })
      client = runner.client
      neighbour = sandboxSpec({ orgId: 'org_b', keyId: 'key_b', user: 'root' })
      await client.sandboxes.start(neighbour)
    }, 120_000)
    afterAll(async () => {
      expect(await runner.close()).toEqual([])
      expect(loopDevicesOf(runner.storageDir)).toEqual([])
    })

    const attack = async (id: string, binary: string, words: readonly string[], more: Partial<ProcessSpec> = {}) => {
      const argv = ['bash', '-c', becomeInput, 'attack', ...words]
      const { processId } = await client.sandboxes.processes.start(id, { argv, stdin: true, ...more })
      await client.sandboxes.processes.write(id, processId, 'stdin', readFileSync(binary))
      await client.sandboxes.processes.close(id, processId, 'stdin')
      return { processId, ended: follow(client, id, processId) }
    }

    const stateOf = async ({ sandboxId }: SandboxSpec) =>
      (await client.sandboxes.list()).find((status) => status.sandboxId === sandboxId)?.state

    /** A sandbox of root for one attack. Afterwards its neighbor works, and nothing of it is left. */
    const inSandbox = async (
      limits: Partial<SandboxLimits>,
      attempt: (spec: SandboxSpec) => Promise<void>,
      more: Partial<SandboxSpec> = {},
    ) => {
      const usual = sandboxSpec({ user: 'root', ...more })
      const spec = { ...usual, limits: { ...usual.limits, ...limits } }
      await client.sandboxes.start(spec)
      try {
        await attempt(spec)
        expect((await execute(client, neighbour.sandboxId, ['echo', 'serves'])).stdout).toBe('serves\n')
      } finally {
        await client.sandboxes.remove('org_a', spec.sandboxId)
      }
    }

    describe('sees nothing of the host and of other sandboxes', () => {
      let directory: string
      let seen: Seen
      let plainly: Seen
      const servers: Server[] = []

      const listen = async (where: { host: string } | { path: string }) => {
        const server = createServer((socket) => socket.end())
        servers.push(server)
        server.listen('host' in where ? { ...where, port: 0 } : where)
        await once(server, 'listening')
        const address = server.address()
        return typeof address === 'object' && address !== null ? address.port : 0
      }

      beforeAll(async () => {
        process.env.GLOVEBOX_CANARY = canary // Of the process that the runner is part of.
        directory = mkdtempSync(join(tmpdir(), 'glovebox-host-'))
        writeFileSync(join(directory, 'glovebox.db'), `secret ${canary}`)
        const ports = [await listen({ host: '127.0.0.1' }), await listen({ host: '::1' })]
        await listen({ path: join(directory, 'socket') })
        const beside = await client.sandboxes.processes.start(neighbour.sandboxId, {
          argv: ['python3', '-c', leave(canary)],
        })
        for await (const { kind } of client.sandboxes.processes.attach(neighbour.sandboxId, beside.processId, 0))
          if (kind === 'output') break
        const asked = {
          ...{ canary, pids: [process.pid, process.ppid], roots: ['/'], facts: machineFacts, ports: [...ports, 7777] },
          ...{ files: [join(directory, 'glovebox.db'), runner.storageDir, '/etc/shadow', '/proc/1/root/etc/shadow'] },
          addresses: [
            ['169.254.169.254', 80],
            ['192.0.2.1', 80],
          ],
          ...{ datagrams: ['192.0.2.1'], unix: [`@${canary}`, join(directory, 'socket')], names: [] },
          ...{ init: 1, jailed: true },
        }
        const less = { ...asked, roots: [directory], addresses: [], datagrams: [], init: process.pid, jailed: false }
        plainly = JSON.parse((await plain('/usr/bin/python3', lookAroundPath, JSON.stringify(less))).stdout)
        await inSandbox({ memoryBytes: 256 * mib }, async ({ sandboxId }) => {
          seen = JSON.parse(
            (await execute(client, sandboxId, ['python3', '-c', lookAround, JSON.stringify(asked)])).stdout,
          )
        })
      })
      afterAll(() => {
        for (const server of servers) server.close()
        delete process.env.GLOVEBOX_CANARY
        rmSync(directory, { recursive: true, force: true })
      })

      it('no process, variable or descriptor', () => {
        expect([plainly.init.environ, Object.values(plainly.known_pids)]).toEqual(['read', ['there', 'there']])
        expect(seen.pids.length).toBeLessThan(4)
        for (const answer of Object.values(seen.known_pids)) expect(answer).toBe('No such process')
        for (const answer of [...Object.values(seen.init), ...Object.values(seen.links_of_init)])
          expect(answer).toMatch(/^(Permission denied|Operation not permitted)$/)
        expect(plainly.environment.GLOVEBOX_CANARY).toBe(canary)
        expect(JSON.stringify(seen.environment)).not.toContain(canary)
      })

      it('no file, by name or by content', () => {
        expect(plainly.canary_files).toContain(join(directory, 'glovebox.db'))
        expect(seen.canary_files).toEqual([])
        const { '/proc/1/root/etc/shadow': throughInit, ...named } = seen.known_files
        expect(throughInit).toBe('Permission denied')
        for (const answer of Object.values(named)) expect(answer).toBe('No such file or directory')
      })

      it('no server, socket or network', () => {
        expect([...Object.values(plainly.tcp)].filter((answer) => answer === 'connected')).toHaveLength(1)
        for (const answer of [...Object.values(seen.tcp), ...Object.values(seen.tcp6)])
          expect(answer).toBe('Connection refused')
        expect(Object.values(seen.unix)).toEqual(['Connection refused', 'No such file or directory'])
        for (const answer of [...Object.values(seen.addresses), ...Object.values(seen.datagrams)])
          expect(answer).toBe('Network is unreachable')
        expect([seen.interfaces, seen.listening, seen.unix_names]).toEqual([['lo'], [], []])
      })

      it('and in /proc and /sys only its own state and the listed facts', () => {
        expect(shownOfProc).toEqual(expect.arrayContaining(seen.proc))
        expect(seen.sys).toEqual(shownOfSys)
        expect(seen.cgroup).not.toContain(runner.machine.settings.instanceId)
        for (const word of [runner.storageDir, runner.machine.settings.instanceId, '/dev/vd', '/dev/loop'])
          expect(seen.mountinfo).not.toContain(word)
        expect(seen.facts['sys/kernel/random/boot_id']).not.toBe(plainly.facts['sys/kernel/random/boot_id'])
      })
    })

    it('gains no privilege by any system call of the table', async () => {
      const calls = compile('calls')
      const without = toAnswers((await outside(calls)).stdout)
      expect(without.get('unshare_mount')).toBe('ok')
      await inSandbox({}, async ({ sandboxId }) => {
        const within = toAnswers((await (await attack(sandboxId, calls, [])).ended).stdout)
        const wrong = expectedAnswers.filter(([name, answer]) => {
          const accepted = allowedToRoot.includes(name) ? ['ok'] : answer.split(' or ')
          return !accepted.includes(within.get(name) ?? 'missing')
        })
        expect(wrong.map(([name, answer]) => `${name}: ${within.get(name)}, not ${answer}`)).toEqual([])
        const raise = `
import os, resource
for path in ['/dev/null', '/dev/urandom', '/proc/sys/kernel/hostname']:
    try: os.utime(path); print(path, 'changed')
    except OSError: pass
for number in os.listdir('/proc/1/fd'):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try: os.open(f'/proc/1/fd/{number}', flags); print('opened', number, 'of init')
        except PermissionError: pass
for name in ('NOFILE', 'NPROC', 'CORE', 'MEMLOCK', 'MSGQUEUE', 'SIGPENDING', 'NICE', 'RTPRIO'):
    soft, hard = resource.getrlimit(getattr(resource, 'RLIMIT_' + name))
    try: resource.setrlimit(getattr(resource, 'RLIMIT_' + name), (soft, hard + 1)); print(name, 'raised')
    except (OSError, ValueError): pass
`
        expect((await execute(client, sandboxId, ['python3', '-c', raise])).stdout).toBe('')
      })
    })

    describe('holds no more memory than its limit', () => {
      const memoryBytes = 64 * mib
      const limits = { memoryBytes, tmpBytes: 512 * mib, fileBytes: 512 * mib, openFiles: 1024 }
      const hold = compile('hold-memory')

      // `home` is its disk here, whose pages the kernel writes and drops.
      it.each([...counted, 'page-tables'].filter((way) => way !== 'home'))('as %s', async (way) => {
        await inSandbox(limits, async (spec) => {
          const { ending, stdout } = await (await attack(spec.sandboxId, hold, [way, '512'])).ended
          expect(ending).toEqual({ kind: 'out_of_memory', limitBytes: memoryBytes })
          if (way !== 'page-tables') expect(heldBytes(stdout)).toBeLessThanOrEqual(memoryBytes)
          expect(await stateOf(spec)).toEqual({ kind: 'running' })
          expect((await client.sandboxes.figures([spec.sandboxId]))[0]?.memoryBytes).toBeLessThanOrEqual(memoryBytes)
        })
      })

      it.each([...sockets, ...bounded])('as %s, which are bounded', async (way) => {
        await inSandbox(limits, async ({ sandboxId }) => {
          const { ending, stdout } = await (await attack(sandboxId, hold, [way, '512'])).ended
          expect(ending.kind === 'out_of_memory' || heldBytes(stdout) <= memoryBytes).toBe(true)
        })
      })

      it.each(uncharged)('as %s socket buffers, which end the sandbox, with the reason', async (way) => {
        await inSandbox({ ...limits, memoryBytes: 256 * mib }, async (spec) => {
          const { ending, stdout } = await (await attack(spec.sandboxId, hold, [way, '1024'])).ended
          expect(ending).toEqual({ kind: 'sandbox_ended' })
          // It is found to hold too much when the runner looks next, so it can hold a little more until then.
          expect(heldBytes(stdout || '0')).toBeLessThan(128 * mib)
          await expect.poll(() => stateOf(spec)).toEqual({ kind: 'crashed', reason: 'out_of_memory' })
        })
      })

      it('and the answer says which process was killed for it, or that one was', async () => {
        await inSandbox(limits, async ({ sandboxId }) => {
          const hog = 'python3 -c "b = bytearray(1 << 28)"'
          const run = (script: string): Promise<Executed> => execute(client, sandboxId, ['bash', '-c', script])
          expect((await run(`${hog}; exit 3`)).ending).toEqual({ kind: 'exited', code: 3, oomKills: 1 })
          // Not confused with that: this one is killed by itself.
          expect((await run('kill -9 $$')).ending).toEqual({ kind: 'signaled', signal: 'KILL' })
          expect((await run(`exec ${hog}`)).ending).toEqual({ kind: 'out_of_memory', limitBytes: memoryBytes })
          expect((await run('true')).ending).toEqual({ kind: 'exited', code: 0 })
        })
      })
    })

    it('fills no writable mount beyond its limit, in bytes and in names, and its disk serves afterwards', async () => {
      const disk = { bytes: 48 * mib, inodes: 2_000 }
      const spec = { tmpBytes: 24 * mib, memoryBytes: 256 * mib, fileBytes: 512 * mib, openFiles: 1024 }
      const check = async ({ sandboxId }: SandboxSpec) => {
        const { stdout } = await execute(client, sandboxId, ['python3', '-c', fillAll])
        const filled = stdout
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line))
          .filter(({ at }) => at !== '/dev/pts') // Holds terminals only.
        expect(filled.map(({ at }) => at)).toEqual(expect.arrayContaining(['/', '/usr', '/tmp', '/dev/shm', '/run']))
        for (const { at, bytes, bytes_error, names, names_error } of filled) {
          const isDisk = !['/tmp', '/dev/shm', '/run'].includes(at)
          expect([at, bytes_error, names_error]).toEqual([at, 'ENOSPC', 'ENOSPC'])
          expect(bytes).toBeLessThanOrEqual(isDisk ? disk.bytes : spec.tmpBytes)
          expect(names).toBeLessThanOrEqual(isDisk ? disk.inodes : spec.tmpBytes / 1024)
        }
        expect((await execute(client, sandboxId, ['sh', '-c', 'echo kept >/kept; cat /kept'])).stdout).toBe('kept\n')
      }
      await inSandbox(spec, check, { disk })
    })

    describe('with a fork bomb', () => {
      const bomb = compile('fork-bomb')
      const limits = { pids: 24, cpus: 0.5 }

      it('makes no more processes than its limit, uses no processor time while it is paused, and is ended', async () => {
        expect((await outside(bomb, '100')).stdout).toContain('made 100')
        await inSandbox(limits, async (spec) => {
          const { sandboxId } = spec
          const { processId, ended } = await attack(sandboxId, bomb, [])
          for await (const event of client.sandboxes.processes.attach(sandboxId, processId, 0))
            if (event.kind === 'output' && Buffer.from(event.bytes).includes('EAGAIN')) break
          expect((await client.sandboxes.figures([sandboxId]))[0]?.processes).toBeLessThanOrEqual(limits.pids + 8)
          await client.sandboxes.pause(sandboxId)
          const [before] = await client.sandboxes.figures([sandboxId])
          for (let i = 0; i < 5; i++) await execute(client, neighbour.sandboxId, ['true'])
          const [after] = await client.sandboxes.figures([sandboxId])
          expect(after?.cpuSeconds).toBe(before?.cpuSeconds)
          await client.sandboxes.resume(sandboxId)
          await client.sandboxes.stop(sandboxId, 100)
          expect((await ended).ending.kind).not.toBe('exited')
          expect(await stateOf(spec)).toBeUndefined()
        })
      })
    })

    it.each(['exit', 'crash', 'wait'])('leaves no process when what it started ends by %s', async (end) => {
      const mark = `glovebox-survivor-${randomBytes(8).toString('hex')}`
      const survivors = compile('survivors')
      await inSandbox({}, async ({ sandboxId }) => {
        const { processId, ended } = await attack(sandboxId, survivors, [mark, end], { timeoutMs: 2_000 })
        for await (const event of client.sandboxes.processes.attach(sandboxId, processId, 0))
          if (event.kind === 'output' && Buffer.from(event.bytes).includes('left 6')) break
        const { ending } = await ended
        expect(ending).toEqual(
          {
            exit: { kind: 'exited', code: 0 },
            crash: { kind: 'signaled', signal: 'SEGV' },
            wait: { kind: 'timed_out', limitMs: 2_000 },
          }[end],
        )
        expect(processesWith(mark).length).toBeGreaterThan(0) // Background processes may stay until it stops.
        await client.sandboxes.stop(sandboxId, 100)
        expect(processesWith(mark)).toEqual([])
      })
    })
  })
})
