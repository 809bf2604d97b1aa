import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunResult, RunSpec, RunVolume } from '../../../src/base/run.ts'
import { RunnerClient } from '../../../src/runner/client/client.ts'
import { openRunner, type RunningRunner } from '../../../src/runner/process.ts'
import type { FileStream } from '../../../src/runner/protocol/messages.ts'
import { type EngineMachine, engineMachine, testLimits } from '../../support/engine-machine.ts'
import { imageSettings } from '../../support/image-settings.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { mib } from '../../support/storage-fixture.ts'

inPrivateMounts(import.meta.filename, () => {
  describe('the volumes of a runner', () => {
    const dir = mkdtempSync(join(tmpdir(), 'glovebox-volumes-'))
    const socketPath = join(dir, 'link', 'runner.sock')
    let machine: EngineMachine
    let running: RunningRunner
    let client: RunnerClient
    let runIds = 0

    beforeAll(async () => {
      chmodSync(dir, 0o711)
      machine = engineMachine('auto')
      const unused = { frontHome: '', frontProgram: '' }
      running = await openRunner(
        {
          instance: { id: 'volumes', stateDir: dir, socketPath, ...unused },
          engine: machine.settings,
          pool: {
            slotsMax: 8,
            slotsReady: 1,
            idleMs: 60_000,
            runsPerSlot: 1_000,
            zygoteMaxAgeMs: 900_000,
            prewarmJails: true,
          },
          queue: { places: 4, placesPerOrg: 4, waitingPerOrg: 64, waitMs: 30_000 },
          sandboxesMax: 0,
          preloads: [],
          images: imageSettings(dir),
          storage: {
            home: join(dir, 'storage'),
            mountsDir: join(dir, 'mounts'),
            reserveBytes: 0,
            durability: 'seconds',
            mountedMax: 12,
            idleMs: 60_000,
          },
          frontUid: 61_000,
          frontGid: 61_000,
          graceMs: 1_000,
        },
        pino({ level: 'silent' }),
      )
      client = new RunnerClient(socketPath, (problem) => expect.unreachable(problem))
      while (!client.readiness.ready) await sleep(10)
    }, 60_000)

    afterAll(async () => {
      client.close()
      await running.close()
      const left = machine.leftovers()
      machine.remove()
      rmSync(dir, { recursive: true })
      expect(left).toEqual([])
    })

    const quota = { bytes: 16 * mib, inodes: 200 }
    const where = (name: string) => ({ area: 'volumes' as const, org: 'org_a', name })
    const volume = (slug: string, mode: 'ro' | 'rw', more: Partial<RunVolume> = {}): RunVolume => ({
      slug,
      name: `vol_${slug}`,
      readOnly: mode === 'ro',
      quota,
      ...more,
    })

    function specOf(volumes: readonly RunVolume[], more: Partial<RunSpec> = {}): RunSpec {
      runIds += 1
      return {
        runId: `trc_${runIds}`,
        orgId: 'org_a',
        keyId: 'key_a',
        profile: 'default',
        profileRevision: '1',
        reuse: 'key',
        language: 'bash',
        env: {},
        limits: { ...testLimits, fileBytes: 64 * mib },
        detached: false,
        volumes,
        ...more,
      }
    }

    async function begin(code: string, volumes: readonly RunVolume[], more: Partial<RunSpec> = {}) {
      const spec = specOf(volumes, more)
      await client.start(spec, { code: Buffer.from(code), stdin: undefined })
      let text = ''
      const started = Promise.withResolvers<void>()
      const ended = (async (): Promise<RunResult & { text: string }> => {
        for await (const event of client.attach(spec.runId, 0)) {
          if (event.kind === 'running') started.resolve()
          if (event.kind === 'output') text += Buffer.from(event.bytes).toString()
          if (event.kind === 'ended') return { ...event.result, text }
        }
        throw new Error('no ending')
      })()
      return { runId: spec.runId, started: started.promise, ended }
    }

    const run = async (...words: Parameters<typeof begin>) => (await begin(...words)).ended
    const thread = (id: string, fence = 1) => ({ id, fence, quota })

    async function contentOf(file: FileStream): Promise<Buffer> {
      const pieces: Uint8Array[] = []
      for await (const piece of file.bytes) pieces.push(piece)
      return Buffer.concat(pieces)
    }

    it('are mounted at /volumes/<slug>, beside the home directory, and keep the files of a run for all others', async () => {
      const both = [volume('data', 'rw'), volume('more', 'rw')]
      const first = await run('echo one >/volumes/data/f; ls /volumes; pwd; stat -c %U /volumes/data', both)
      expect(first.text).toBe('data\nmore\n/home/baponi\nbaponi\n')
      const second = await run('cat /volumes/data/f; echo two >>/volumes/data/f', both, { keyId: 'key_b' })
      expect(second.text).toBe('one\n')
      const python = 'print(open("/volumes/data/f").read(), end="")\nopen("note", "w").write("kept")'
      const third = await run(python, both, { language: 'python', thread: thread('beside') })
      expect(third.text).toBe('one\ntwo\n')
      const fourth = await run('cat note; ls /volumes', [], { thread: thread('beside', 2) })
      expect(fourth.text).toBe('kept')
      expect((await run('ls /volumes/data', both, { orgId: 'org_b' })).text).toBe('')
    })

    it('are mounted for a prewarmed python, and for node, too', async () => {
      const volumes = [volume('waited', 'rw')]
      for (const language of ['python', 'node'] as const) {
        const code =
          language === 'python'
            ? 'import os\nopen("/volumes/waited/n","a").write("x")\nprint(open("/volumes/waited/n").read(), os.getcwd())'
            : 'const fs = require("fs"); fs.appendFileSync("/volumes/waited/n", "x"); console.log(fs.readFileSync("/volumes/waited/n", "utf8"), process.cwd())'
        await run('echo -n >/volumes/waited/n', volumes)
        for (let times = 1; times <= 6; times++) {
          const ran = await run(code, volumes, { language })
          expect(ran.text).toBe(`${'x'.repeat(times)} /home/baponi\n`)
          await sleep(60)
        }
      }
    })

    it('are used by several runs at once, read-only by some', async () => {
      const writer = await begin(
        'for i in $(seq 400); do [ -e /volumes/shared/stop ] && exit 0; echo $i >/volumes/shared/at; sleep 0.05; done; exit 3',
        [volume('shared', 'rw')],
      )
      await writer.started
      const reader = await run(
        'until [ -s /volumes/shared/at ]; do sleep 0.05; done; cat /volumes/shared/at; echo no >/volumes/shared/at',
        [volume('shared', 'ro')],
        { keyId: 'key_b' },
      )
      expect(reader.text).toMatch(/^\d+\n.*Read-only file system/s)
      expect((await run('touch /volumes/shared/stop', [volume('shared', 'rw')], { keyId: 'key_c' })).ending).toEqual({
        kind: 'exited',
        code: 0,
      })
      expect((await writer.ended).ending).toEqual({ kind: 'exited', code: 0 })
    })

    it('cannot be changed in any way when they are read-only', async () => {
      await run('cd /volumes/sealed; echo a >f; mkdir d; ln -s f l; touch -d 2001-01-01 f', [volume('sealed', 'rw')])
      const attack = `
import ctypes, os, errno
libc = ctypes.CDLL(None, use_errno=True)
root = '/volumes/sealed'
def tried(name, work):
    try: work()
    except OSError as error: print(name, errno.errorcode[error.errno])
    else: print(name, 'DONE')
def call(name, *words):
    if libc.__getattr__(name)(*words) != 0: raise OSError(ctypes.get_errno(), name)
os.chdir(root)
before = os.stat('f')
tried('write', lambda: open('f', 'a'))
tried('create', lambda: open('g', 'x'))
tried('chmod', lambda: os.chmod('f', 0o777))
tried('chown', lambda: os.chown('f', 1000, 1000))
tried('utime', lambda: os.utime('f'))
tried('unlink', lambda: os.unlink('f'))
tried('mkdir', lambda: os.mkdir('e'))
tried('rename', lambda: os.rename('f', 'h'))
tried('link', lambda: os.link('f', 'h'))
tried('xattr', lambda: os.setxattr('f', 'user.a', b'b'))
tried('truncate', lambda: os.truncate('f', 0))
tried('fifo', lambda: os.mkfifo('p'))
tried('remount', lambda: call('mount', None, root.encode(), None, 32 | 4096, None))
tried('bind', lambda: call('mount', b'/tmp', root.encode(), None, 4096, None))
tried('unmount', lambda: call('umount2', root.encode(), 2))
tried('root', lambda: os.mkdir('/volumes/x'))
fd = os.open('f', os.O_RDONLY); os.read(fd, 1)
tried('reopen', lambda: os.open('/proc/self/fd/%d' % fd, os.O_WRONLY))
after = os.stat('f')
print(before.st_atime == after.st_atime, before.st_ctime == after.st_ctime)
print([line.split()[5] for line in open('/proc/self/mountinfo') if line.split()[4] == root])
`
      for (let times = 0; times < 2; times++) {
        const ran = await run(attack, [volume('sealed', 'ro')], { language: 'python' })
        const lines = ran.text.trim().split('\n')
        expect(ran.text).not.toContain('DONE')
        expect(lines).toHaveLength(19)
        expect(lines.filter((line) => / (EROFS|EPERM|EACCES|ENOSYS)$/.test(line))).toHaveLength(17)
        expect(lines.at(-2)).toBe('True True')
        expect(lines.at(-1)).toMatch(/'ro,nosuid,nodev,noatime/)
        await sleep(60)
      }
    })

    it('are separate from each other and from home: no link and no rename crosses them', async () => {
      const both = [volume('left', 'rw'), volume('right', 'rw')]
      const code = `
import os, errno
open('/volumes/left/f', 'w').write('x'); open('/home/baponi/h', 'w').write('x')
for a, b in [('/volumes/left/f', '/volumes/right/f'), ('/home/baponi/h', '/volumes/left/h'), ('/volumes/left/f', '/home/baponi/f')]:
    for verb in (os.link, os.rename):
        try: verb(a, b)
        except OSError as error: print(errno.errorcode[error.errno], end=' ')
`
      const ran = await run(code, both, { language: 'python', thread: thread('apart') })
      expect(ran.text).toBe('EXDEV '.repeat(6))
    })

    it('end a run that fills one and dies of it as disk_quota, and only when it could write', async () => {
      const full = volume('full', 'rw', { quota: { bytes: 8 * mib, inodes: 64 } })
      const ran = await run('head -c 20M /dev/zero >/volumes/full/f', [full, volume('data', 'rw')])
      expect(ran).toMatchObject({ ending: { kind: 'disk_quota', limitBytes: 8 * mib } })
      expect(ran.text).toMatch(/No space left on device/)
      expect((await run('exit 4', [{ ...full, readOnly: true }])).ending).toEqual({ kind: 'exited', code: 4 })
    })

    it('never block the host with special files', async () => {
      const code =
        'cd /volumes/odd; mkfifo p; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\'s\')"; ln -s /etc/passwd l; mknod d c 1 3; ls'
      const ran = await run(code, [volume('odd', 'rw')])
      expect(ran.text).toMatch(/l\np\ns\n$/)
      for (const name of ['p', 's', 'l']) {
        await expect(client.files.read(where('vol_odd'), name)).rejects.toMatchObject({ code: 'not_a_file' })
      }
      expect((await client.files.list(where('vol_odd'), '', { limit: 10 })).entries.map(({ name }) => name)).toEqual(
        expect.arrayContaining(['l', 'p', 's']),
      )
    })

    it('accept files from a client at any time, also during runs', async () => {
      const going = await begin('until [ -e /volumes/files/in ]; do sleep 0.05; done; cat /volumes/files/in', [
        volume('files', 'ro'),
      ])
      await going.started
      expect(await client.files.write(where('vol_files'), 'in', [Buffer.from('sent')])).toBe(4)
      expect((await going.ended).text).toBe('sent')
      expect((await contentOf(await client.files.read(where('vol_files'), 'in'))).toString()).toBe('sent')
      await expect(client.files.read(where('vol_none'), 'in')).rejects.toMatchObject({ code: 'volume_unknown' })
    })

    it('are created, listed, grown and erased, but not during runs', async () => {
      expect(await client.storage.create(where('vol_kept'), quota)).toBe(true)
      expect(await client.storage.create(where('vol_kept'), quota)).toBe(false)
      const kept = volume('kept', 'rw')
      const going = await begin(
        'head -c 4M /dev/zero >/volumes/kept/f; until [ -e /volumes/kept/go ]; do sleep 0.05; done',
        [kept],
      )
      await going.started
      await expect(client.storage.remove(where('vol_kept'))).rejects.toMatchObject({ code: 'volume_busy' })
      expect(await client.storage.inspect(where('vol_kept'))).toMatchObject({ mounted: true })
      await client.files.write(where('vol_kept'), 'go', [])
      expect((await going.ended).ending).toEqual({ kind: 'exited', code: 0 })
      const before = await client.storage.inspect(where('vol_kept'))
      expect(before).toMatchObject({ usedBytes: expect.any(Number), inodes: expect.any(Number) })
      expect(before.usedBytes).toBeGreaterThanOrEqual(4 * mib)
      expect(before.quotaBytes).toBeGreaterThanOrEqual(16 * mib)
      expect(before.sizeBytes).toBeGreaterThan(0) // Data that was not written back yet is not on the disk.
      expect(await client.storage.create(where('vol_kept'), { bytes: 64 * mib, inodes: 200 })).toBe(false)
      expect((await client.storage.inspect(where('vol_kept'))).quotaBytes).toBeGreaterThanOrEqual(64 * mib)
      expect(await client.storage.names('volumes', 'org_a', 'vol_k', 1)).toEqual(['vol_kept'])
      expect(await client.storage.sizes('volumes', 'org_a', ['vol_kept', 'vol_none'])).toEqual([
        expect.any(Number),
        null,
      ])
      expect(await client.storage.remove(where('vol_kept'))).toBe(true)
      expect(await client.storage.remove(where('vol_kept'))).toBe(false)
      await expect(client.storage.inspect(where('vol_kept'))).rejects.toMatchObject({ code: 'volume_unknown' })
      // A request from before the erasure does not create it again.
      await expect(run('true', [kept])).rejects.toMatchObject({ code: 'volume_unknown' })
    })

    it('are unmounted from a slot after each run, however it ends', async () => {
      const volumes = [volume('left-one', 'rw'), volume('left-two', 'ro')]
      for (const language of ['bash', 'python'] as const) {
        for (let times = 0; times < 4; times++) {
          const going = await begin(language === 'bash' ? 'sleep 30' : 'import time; time.sleep(30)', volumes, {
            language,
          })
          if (times > 0) await going.started
          await client.cancel(going.runId, 'cancelled')
          expect((await going.ended).ending).toEqual({ kind: 'cancelled' })
        }
      }
      for (const { name } of volumes) expect(await client.storage.remove(where(name))).toBe(true)
    })
  })
})
