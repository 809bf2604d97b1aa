import { createHash } from 'node:crypto'
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Refusal } from '../../../src/base/errors.ts'
import type { RunResult, RunSpec, RunThread } from '../../../src/base/run.ts'
import { RunnerClient } from '../../../src/runner/client/client.ts'
import { openRunner, type RunningRunner } from '../../../src/runner/process.ts'
import type { FileStream } from '../../../src/runner/protocol/messages.ts'
import { type EngineMachine, engineMachine, testLimits } from '../../support/engine-machine.ts'
import { imageSettings } from '../../support/image-settings.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { mib, zeros } from '../../support/storage-fixture.ts'

/** Fewer than a disk of any kind has, and enough for what the tests do. */
const iops = 500

inPrivateMounts(import.meta.filename, () => {
  describe('the threads of a runner', () => {
    const dir = mkdtempSync(join(tmpdir(), 'glovebox-threads-'))
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
          instance: { id: 'threads', stateDir: dir, socketPath, ...unused },
          engine: { ...machine.settings, storageIops: iops },
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
            mountedMax: 8,
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

    const where = (name: string, org = 'org_a') => ({ area: 'threads' as const, org, name })
    const threadOf = (id: string, fence = 1, quota = { bytes: 32 * mib, inodes: 200 }): RunThread => ({
      id,
      fence,
      quota,
    })

    function specOf(thread: RunThread | undefined, more: Partial<RunSpec> = {}): RunSpec {
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
        limits: testLimits,
        detached: false,
        ...(thread && { thread }),
        ...more,
      }
    }

    async function begin(code: string, thread: RunThread | undefined, more: Partial<RunSpec> = {}) {
      const spec = specOf(thread, more)
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

    async function contentOf(file: FileStream): Promise<Buffer> {
      const pieces: Uint8Array[] = []
      for await (const piece of file.bytes) pieces.push(piece)
      return Buffer.concat(pieces)
    }

    it('leave nothing in the memory peak of the next run, whatever was written to them', async () => {
      const writes = 'for n in 1 2 3; do head -c 7000000 /dev/zero >file$n; sync file$n; done'
      const heavy = await run(writes, threadOf('heavy'))
      expect(heavy.memoryPeakBytes).toBeGreaterThan(20 * mib)
      for (const fence of [2, 3]) {
        const { ending, memoryPeakBytes } = await run(':', threadOf('heavy', fence))
        expect(ending).toEqual({ kind: 'exited', code: 0 })
        expect(memoryPeakBytes).toBeLessThan(8 * mib)
      }
    })

    const throttle = '/sys/fs/cgroup/blkio/blkio.throttle.read_iops_device'
    const canThrottle = existsSync(throttle) || existsSync('/sys/fs/cgroup/io.stat')
    it.skipIf(!canThrottle)('limits the operations that a run makes on the device of its thread', async () => {
      const code = `
import mmap, os, time
os.write(os.open('data', os.O_WRONLY | os.O_CREAT), bytes(1 << 20))
file, page = os.open('data', os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
startedS = time.monotonic()
for number in range(${iops * 2}):
    os.preadv(file, [page], number % 256 * 4096)
print(time.monotonic() - startedS)
`
      const run = await begin(code, threadOf('direct'), { language: 'python' })
      const { ending, text } = await run.ended
      expect(ending).toEqual({ kind: 'exited', code: 0 })
      // The kernel lets the first operations of an interval pass together.
      expect(Number(text)).toBeGreaterThan(1.5)
    })

    it('keep the home directory from run to run, and nothing else', async () => {
      await run('echo kept >here; echo lost >/tmp/there', threadOf('kept'))
      const again = await run('cat here; ls /tmp; pwd', threadOf('kept', 2))
      expect(again.text).toBe('kept\n/home/baponi\n')
      expect((await run('ls -A', undefined)).text).toBe('')
      expect((await run('ls -A', threadOf('other'))).text).toBe('')
      expect((await run('ls -A', threadOf('kept', 1), { orgId: 'org_b' })).text).toBe('')
    })

    it('are used by one run at a time, and available to the next as soon as the ending is reported', async () => {
      const first = await begin('echo begun; read -r -t 20 x </dev/tcp/127.0.0.1/1; sleep 20', threadOf('one'))
      await first.started
      await expect(run('true', threadOf('one', 2))).rejects.toMatchObject({ code: 'thread_busy' })
      await client.cancel(first.runId, 'cancelled')
      expect((await first.ended).ending).toEqual({ kind: 'cancelled' })
      for (let fence = 3; fence < 40; fence++) {
        expect((await run('echo "$RANDOM" >>log', threadOf('one', fence))).ending).toEqual({ kind: 'exited', code: 0 })
      }
    })

    it('reject a run with an old fencing number', async () => {
      await run('true', threadOf('fenced', 7))
      await expect(run('true', threadOf('fenced', 6))).rejects.toMatchObject({ code: 'thread_busy' })
      expect((await run('true', threadOf('fenced', 7))).ending).toEqual({ kind: 'exited', code: 0 })
    })

    it('accept exactly one of fifty simultaneous first runs', async () => {
      const tries = Array.from({ length: 50 }, () => begin('sleep 0.2; echo once >>log; cat log', threadOf('first')))
      const settled = await Promise.allSettled(tries)
      const won = settled.filter((one) => one.status === 'fulfilled')
      expect(won).toHaveLength(1)
      for (const one of settled)
        if (one.status === 'rejected') expect(one.reason).toMatchObject({ code: 'thread_busy' })
      expect((await won[0]?.value.ended)?.text).toBe('once\n')
    })

    it('end a run that fills them and dies of it as disk_quota, by bytes and by files', async () => {
      const quota = { bytes: 8 * mib, inodes: 64 }
      const bytes = await run('head -c 7M /dev/zero >big; head -c 7M /dev/zero >bigger', threadOf('full', 1, quota))
      expect(bytes.ending).toEqual({ kind: 'disk_quota', limitBytes: 8 * mib })
      expect(bytes.text).toMatch(/No space left on device/)
      const files = await run(
        'rm big bigger; for i in $(seq 100); do : >f$i || exit 1; done',
        threadOf('full', 2, quota),
      )
      expect(files.ending).toEqual({ kind: 'disk_quota', limitBytes: 8 * mib })
      const lives = await run('exec 2>/dev/null; head -c 20M /dev/zero >big; echo lives on', threadOf('full', 3, quota))
      expect(lives).toMatchObject({ ending: { kind: 'exited', code: 0 }, text: 'lives on\n' })
      const room = await run('rm -f f* big bigger; exit 4', threadOf('full', 4, quota))
      expect(room.ending).toEqual({ kind: 'exited', code: 4 })
      const mapped =
        'import mmap\nf = open("m", "wb+"); f.truncate(16 << 20)\nm = mmap.mmap(f.fileno(), 0)\nfor i in range(0, 16 << 20, 4096): m[i] = 1\n'
      const limits = { ...testLimits, fileBytes: 64 * mib }
      const bus = await run(mapped, threadOf('full', 5, quota), { language: 'python', limits })
      expect(bus.ending).toEqual({ kind: 'disk_quota', limitBytes: 8 * mib })
    })

    it('keep the size that they were created with, and report that limit, when a later run has a smaller one', async () => {
      await run('true', threadOf('wide', 1, { bytes: 32 * mib, inodes: 200 }))
      const limits = { ...testLimits, fileBytes: 64 * mib }
      const fill = (words: string, fence: number) =>
        run(words, threadOf('wide', fence, { bytes: 8 * mib, inodes: 200 }), { limits })
      expect((await fill('head -c 24M /dev/zero >big', 2)).ending).toEqual({ kind: 'exited', code: 0 })
      const { ending } = await fill('head -c 60M /dev/zero >big', 3)
      expect(ending).toMatchObject({ kind: 'disk_quota', limitBytes: expect.any(Number) })
      expect(ending.kind === 'disk_quota' && Math.round(ending.limitBytes / mib)).toBeGreaterThanOrEqual(32)
    })

    it('do not report a file size limit as a full disk', async () => {
      const limits = { ...testLimits, fileBytes: mib }
      const ran = await run('head -c 3M /dev/zero >big', threadOf('large'), { limits })
      expect(ran.ending).not.toMatchObject({ kind: 'disk_quota' })
    })

    it('stream files of any size, with or without a range', async () => {
      await run('head -c 5000000 /dev/urandom >data; sha256sum <data >sum', threadOf('files'))
      const whole = await client.files.read(where('files'), 'data')
      expect(whole).toMatchObject({ lengthBytes: 5_000_000, status: { kind: 'file', sizeBytes: 5_000_000 } })
      const content = await contentOf(whole)
      const part = await client.files.read(where('files'), 'data', { offset: 999_999, lengthBytes: 700_001 })
      expect((await contentOf(part)).equals(content.subarray(999_999, 1_700_000))).toBe(true)
      expect(await client.files.write(where('files'), 'a/b/copy', [content])).toBe(5_000_000)
      const sums = await run('sha256sum <a/b/copy; cat sum; stat -c %U a/b/copy', threadOf('files', 2))
      const [copied, original, owner] = sums.text.trim().split('\n')
      expect(copied).toBe(original)
      expect(owner).toBe('baponi')
    })

    it('list, stat, create, move and delete their files', async () => {
      const { files } = client
      const at = where('tidy')
      await run('mkfifo pipe; ln -s /etc/passwd link; mkdir -p d/e; echo x >d/e/f', threadOf('tidy'))
      const { entries, cursor } = await files.list(at, '', { limit: 100 })
      expect(entries.map(({ name, kind }) => `${name} ${kind}`).sort()).toEqual([
        'd directory',
        'link link',
        'pipe fifo',
      ])
      expect(cursor).toBeUndefined()
      expect(await files.stat(at, 'd/e/f')).toMatchObject({ kind: 'file', sizeBytes: 2 })
      await files.makeDirectory(at, 'g/h')
      await files.move(at, 'd/e/f', 'g/h/f', false)
      expect(await files.delete(at, 'd', true)).toMatchObject({ entries: 2, complete: true })
      for (const path of ['pipe', 'link']) {
        await expect(files.read(at, path)).rejects.toMatchObject({ code: 'not_a_file' })
      }
      await expect(files.read(at, '../x')).rejects.toMatchObject({ code: 'path_invalid' })
      await expect(files.read(at, 'link/x')).rejects.toMatchObject({ code: 'not_a_directory' })
      await expect(files.stat(where('tidy', 'org_b'), 'g')).rejects.toMatchObject({ code: 'thread_unknown' })
      await expect(files.stat(where('unmade'), '../x')).rejects.toMatchObject({ code: 'path_invalid' })
    })

    it('return a workbook and an image byte for byte, both ways; the last of two writes to one name wins', async () => {
      const make = `
import hashlib, os, zipfile
with zipfile.ZipFile('book.xlsx', 'w', zipfile.ZIP_DEFLATED) as book:
    for name in ['[Content_Types].xml', 'xl/workbook.xml', 'xl/media/image1.png']: book.writestr(name, os.urandom(300_000))
open('plot.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(200_000))
for name in ['book.xlsx', 'plot.png']: print(hashlib.sha256(open(name, 'rb').read()).hexdigest())
`
      const sums = (await run(make, threadOf('bytes'), { language: 'python' })).text.trim().split('\n')
      const read = async (path: string) => contentOf(await client.files.read(where('bytes'), path))
      const [book, plot] = [await read('book.xlsx'), await read('plot.png')]
      expect([book, plot].map((bytes) => createHash('sha256').update(bytes).digest('hex'))).toEqual(sums)
      await client.files.write(where('bytes'), 'up/same', [plot, plot])
      await client.files.write(where('bytes'), 'up/same', [book])
      const seen = await run('sha256sum <up/same; ls up', threadOf('bytes', 2))
      expect(seen.text).toBe(`${sums[0]}  -\nsame\n`)
    })

    it('do not follow links that a run created out of the thread, for any operation', async () => {
      const outside = mkdtempSync(join(tmpdir(), 'glovebox-outside-'))
      writeFileSync(join(outside, 'keep'), 'of the host')
      const at = where('links')
      await run(
        `ln -s /etc/passwd passwd; ln -s ${outside} out; ln -s ${outside}/keep keep; ln -s ${outside}/new new; echo mine >note; ln note hard`,
        threadOf('links'),
      )
      const { files } = client
      const attempts = [
        ...['passwd', 'keep', 'out/keep'].map((path) => files.read(at, path)),
        ...['passwd', 'keep', 'new', 'out/new'].map((path) => files.write(at, path, [Buffer.from('taken over')])),
        ...['out', 'out/d'].map((path) => files.list(at, path, { limit: 10 })),
        files.stat(at, 'out/keep'),
        files.makeDirectory(at, 'out/d'),
        files.move(at, 'note', 'out/note', true),
        files.move(at, 'out/keep', 'kept', true),
        files.delete(at, 'out/keep', false),
      ]
      const answers = await Promise.allSettled(attempts)
      for (const answer of answers) expect(answer).toMatchObject({ status: 'rejected', reason: expect.any(Refusal) })
      await files.delete(at, 'out', true)
      expect([readdirSync(outside), readFileSync(join(outside, 'keep'), 'utf8')]).toEqual([['keep'], 'of the host'])
      expect((await run('cat note hard', threadOf('links', 2))).text).toBe('mine\nmine\n')
      rmSync(outside, { recursive: true })
    })

    it('serve files to many at once: one organization in turn, without delay for another', async () => {
      await run('head -c 900000 /dev/urandom >data', threadOf('many'))
      const read = async (org: string) => contentOf(await client.files.read(where('many', org), 'data'))
      const one = await read('org_a')
      await run('head -c 900000 /dev/zero >data', threadOf('many'), { orgId: 'org_b', keyId: 'key_b' })
      // These are not read to the end, so they keep their turns.
      const slow = await Promise.all(Array.from({ length: 16 }, () => client.files.read(where('many'), 'data')))
      const rest = Promise.all(Array.from({ length: 100 }, () => read('org_a')))
      expect((await read('org_b')).equals(Buffer.alloc(900_000))).toBe(true)
      for (const file of slow) file.stop()
      for (const content of await rest) expect(content.equals(one)).toBe(true)
    })

    it('reject too many simultaneous requests and answer all others, on a connection that stays open', async () => {
      const { epoch } = client.identity ?? {}
      const long = 'n'.repeat(200)
      await run(`for n in $(seq 150); do : >${long}$n; done`, threadOf('crowd'))
      const stats = Array.from({ length: 2_000 }, () => client.files.list(where('crowd'), '', { limit: 1_000 }))
      const answers = await Promise.allSettled(stats)
      const refused = answers.filter((answer) => answer.status === 'rejected').map(({ reason }) => reason.code)
      expect(new Set(refused)).toEqual(new Set(['files_busy']))
      expect(answers.length - refused.length).toBeGreaterThan(500)
      expect([client.readiness.ready, client.identity?.epoch]).toEqual([true, epoch])
      const { ending } = await run('ls | wc -l', threadOf('crowd', 2))
      expect(ending).toEqual({ kind: 'exited', code: 0 })
    })

    it('can be read while a run uses them, and not changed', async () => {
      const going = await begin('echo seen >note; sleep 20', threadOf('shared'))
      await going.started
      const note = async () => contentOf(await client.files.read(where('shared'), 'note')).then(String)
      await expect.poll(note).toBe('seen\n')
      const attempts = [
        client.files.write(where('shared'), 'new', [Buffer.from('x')]),
        client.files.makeDirectory(where('shared'), 'new'),
        client.files.move(where('shared'), 'note', 'new', false),
        client.files.delete(where('shared'), 'note', true),
      ]
      for (const attempt of attempts) await expect(attempt).rejects.toMatchObject({ code: 'thread_busy' })
      await client.cancel(going.runId, 'cancelled')
      await going.ended
      expect(await client.files.write(where('shared'), 'new', [Buffer.from('x')])).toBe(1)
    })

    it('start no run while a file is written, and discard an aborted file', async () => {
      await run('true', threadOf('upload'))
      const hold = Promise.withResolvers<void>()
      async function* source() {
        yield Buffer.alloc(mib)
        await hold.promise
        throw new Error('given up')
      }
      const writing = client.files.write(where('upload'), 'half', source())
      await sleep(50)
      await expect(run('true', threadOf('upload', 2))).rejects.toMatchObject({ code: 'thread_busy' })
      hold.resolve()
      await expect(writing).rejects.toThrow('given up')
      await expect.poll(() => run('ls -A', threadOf('upload', 3)).then(({ text }) => text, String)).toBe('')
    })

    it('are made by one of many first uploads, and none of these finds them busy', async () => {
      const quota = { bytes: 8 * mib, inodes: 200 }
      for (let round = 0; round < 25; round++) {
        const upload = async (_: unknown, n: number) => {
          await sleep(n / 2) // Some look for the thread while another one makes it, some when it has just been made.
          await client.files.stat(where(`first-${round}`), `file-${n}`).catch(() => undefined)
          const made = await client.storage.create(where(`first-${round}`), quota)
          await client.files.write(where(`first-${round}`), `file-${n}`, zeros(n))
          return made
        }
        const made = await Promise.all(Array.from({ length: 40 }, upload))
        expect(made.filter(Boolean)).toHaveLength(1)
        await client.storage.remove(where(`first-${round}`))
      }
    })

    it('report that they are full to the writer of a file, and keep the previous content', async () => {
      const quota = { bytes: 8 * mib, inodes: 64 }
      await run('echo old >file', threadOf('small', 1, quota))
      await expect(client.files.write(where('small'), 'file', zeros(12 * mib))).rejects.toMatchObject({
        code: 'storage_full',
      })
      expect((await contentOf(await client.files.read(where('small'), 'file'))).toString()).toBe('old\n')
    })

    it('close a file whose reader stops early', async () => {
      await run('truncate -s 100M sparse', threadOf('left', 1, { bytes: 8 * mib, inodes: 64 }), {
        limits: { ...testLimits, fileBytes: 200 * mib },
      })
      for (let i = 0; i < 100; i++) {
        const file = await client.files.read(where('left'), 'sparse')
        for await (const piece of file.bytes) if (piece.length > 0) break
      }
      const unread = await client.files.read(where('left'), 'sparse')
      unread.stop()
      await expect
        .poll(() => run('rm sparse', threadOf('left', 2)).then(({ ending }) => ending.kind, String))
        .toBe('exited')
    })

    it('have separate slots if the profile says so', async () => {
      const idsOf = async (thread: RunThread | undefined) =>
        (await run('cat /proc/self/uid_map', thread, { reuse: 'thread' })).text
      const first = await idsOf(threadOf('alone-a'))
      expect(await idsOf(threadOf('alone-a', 2))).toBe(first)
      expect(await idsOf(threadOf('alone-b'))).not.toBe(first)
      const without = [await idsOf(undefined), await idsOf(undefined)]
      expect(without).not.toContain(first)
    })

    it('can outnumber the mount places, each mounted on demand', async () => {
      for (let i = 0; i < 20; i++) await run(`echo ${i} >n`, threadOf(`many-${i}`))
      for (let i = 0; i < 20; i++) expect((await run('cat n', threadOf(`many-${i}`, 2))).text).toBe(`${i}\n`)
    })
  })
})
