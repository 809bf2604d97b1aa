import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  closeSync,
  fsyncSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunResult, RunSpec } from '../../../src/base/run.ts'
import { RunnerClient } from '../../../src/runner/client/client.ts'
import { openRunner, type RunningRunner } from '../../../src/runner/process.ts'
import { type EngineMachine, engineMachine, testLimits } from '../../support/engine-machine.ts'
import { until } from '../../support/glovebox.ts'
import { imageSettings } from '../../support/image-settings.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { mib, zeros } from '../../support/storage-fixture.ts'

// A fast disk takes several MiB in a millisecond: the reserve is more than what is written until a writer has been ended.
const diskBytes = 768 * mib
const reserveBytes = 256 * mib
const quotaBytes = 900 * mib

inPrivateMounts(import.meta.filename, () => {
  describe('a disk that is smaller than the quotas on it', () => {
    const dir = mkdtempSync(join(tmpdir(), 'glovebox-disk-'))
    const disk = join(dir, 'disk')
    const socketPath = join(dir, 'link', 'runner.sock')
    const log: Record<string, unknown>[] = []
    let machine: EngineMachine
    let running: RunningRunner
    let client: RunnerClient
    let runIds = 0

    beforeAll(async () => {
      chmodSync(dir, 0o711)
      mkdirSync(disk)
      writeFileSync(join(dir, 'disk.img'), '')
      truncateSync(join(dir, 'disk.img'), diskBytes)
      execFileSync('mkfs.ext4', ['-q', '-F', '-m', '0', join(dir, 'disk.img')])
      execFileSync('mount', ['-o', 'loop', join(dir, 'disk.img'), disk])
      machine = engineMachine('auto')
      const unused = { frontHome: '', frontProgram: '' }
      const storage = {
        home: join(disk, 'storage'),
        mountsDir: join(dir, 'mounts'),
        mountedMax: 8,
        idleMs: 60_000,
        durability: 'seconds' as const,
      }
      running = await openRunner(
        {
          instance: { id: 'disk', stateDir: dir, socketPath, ...unused },
          engine: machine.settings,
          pool: {
            ...{ slotsMax: 8, slotsReady: 1, idleMs: 60_000, runsPerSlot: 1_000, zygoteMaxAgeMs: 900_000 },
            prewarmJails: true,
          },
          queue: { places: 4, placesPerOrg: 4, waitingPerOrg: 64, waitMs: 30_000 },
          sandboxesMax: 0,
          preloads: [],
          images: imageSettings(dir),
          storage: { ...storage, reserveBytes },
          ...{ frontUid: 61_000, frontGid: 61_000, graceMs: 1_000 },
        },
        pino({ level: 'warn' }, { write: (line: string) => void log.push(JSON.parse(line)) }),
      )
      client = new RunnerClient(socketPath, (problem) => expect.unreachable(problem))
      while (!client.readiness.ready) await sleep(10)
    }, 60_000)

    afterAll(async () => {
      client.close()
      await running.close()
      const left = machine.leftovers()
      machine.remove()
      execFileSync('umount', [disk])
      rmSync(dir, { recursive: true })
      expect(left).toEqual([])
    })

    const freeBytes = () => {
      const { bavail, bsize } = statfsSync(disk)
      return bavail * bsize
    }

    async function run(orgId: string, id: string, code: string): Promise<RunResult & { text: string }> {
      runIds += 1
      const spec: RunSpec = {
        ...{ runId: `trc_${runIds}`, orgId, keyId: `key_${orgId}`, profile: 'default', profileRevision: '1' },
        ...{ reuse: 'key', language: 'bash', env: {}, detached: false },
        limits: { ...testLimits, fileBytes: 1024 * mib, memoryBytes: 64 * mib },
        thread: { id, fence: runIds, quota: { bytes: quotaBytes, inodes: 500 } },
      }
      await client.start(spec, { code: Buffer.from(code), stdin: undefined })
      let text = ''
      for await (const event of client.attach(spec.runId, 0)) {
        if (event.kind === 'output') text += Buffer.from(event.bytes).toString()
        if (event.kind === 'ended') return { ...event.result, text }
      }
      throw new Error('no ending')
    }

    const where = (org: string, name: string) => ({ area: 'threads' as const, org, name })
    const fill = 'cat /dev/zero >big'

    it('ends the run that writes before the reserve is used up, and names the disk of the server', async () => {
      await run('org_b', 'other', 'echo b >here')
      let least = Number.POSITIVE_INFINITY
      const watching = setInterval(() => (least = Math.min(least, freeBytes())), 5)
      const ran = await run('org_a', 'hog', fill)
      await sleep(1_000) // What the run wrote last is on its way to the disk.
      clearInterval(watching)
      expect(ran.ending).toEqual({ kind: 'disk_quota', limitBytes: quotaBytes, disk: 'server' })
      expect(least).toBeGreaterThan(reserveBytes / 2)
      // It had what was free for it.
      expect(freeBytes()).toBeLessThan(reserveBytes * 1.25)
    })

    it('leaves the reserve to the database and to other organizations', async () => {
      execFileSync('fallocate', ['-l', `${Math.max(freeBytes() - reserveBytes * 0.75, mib)}`, join(disk, 'padding')])
      const database = openSync(join(disk, 'database'), 'w')
      writeSync(database, Buffer.alloc(4 * mib, 1))
      fsyncSync(database)
      closeSync(database)
      await expect(run('org_a', 'hog', 'echo more >more')).rejects.toMatchObject({ code: 'disk_unavailable' })
      await expect(run('org_a', 'new', 'true')).rejects.toMatchObject({ code: 'disk_unavailable' })
      await expect(client.files.write(where('org_a', 'hog'), 'x', zeros(10))).rejects.toMatchObject({
        code: 'disk_unavailable',
      })
      const other = await run('org_b', 'other', 'cat here; echo more >more; cat more')
      expect(other).toMatchObject({ ending: { kind: 'exited', code: 0 }, text: 'b\nmore\n' })
      expect((await client.files.stat(where('org_a', 'hog'), 'big')).kind).toBe('file')
    })

    it('can be written again within seconds after files were deleted', async () => {
      rmSync(join(disk, 'padding'))
      await client.files.delete(where('org_a', 'hog'), 'big', false)
      await client.storage.remove(where('org_a', 'hog'))
      await until(() => freeBytes() > 2 * reserveBytes, 'the space is free', 5_000)
      const again = await run('org_a', 'hog', 'echo again >file; cat file')
      expect(again).toMatchObject({ ending: { kind: 'exited', code: 0 }, text: 'again\n' })
    })

    it('fails a run whose files it could not store, and accepts the next one when there is room', async () => {
      const waiting = run('org_a', 'lost', 'echo early >early; sleep 2; head -c 49152 /dev/zero >late; exit 0')
      const isThere = () => client.files.stat(where('org_a', 'lost'), 'early').then(Boolean, () => false)
      await until(isThere, 'the run has begun')
      const ballast = fillDisk()
      expect((await waiting).ending).toEqual({ kind: 'failed', reason: 'files_lost' })
      expect(log).toContainEqual(expect.objectContaining({ msg: 'the disk lost what a run wrote' }))
      rmSync(ballast)
      const again = async () => {
        const next = await run('org_a', 'lost', 'echo next >next; cat next').catch(() => undefined)
        return next?.text === 'next\n' && next.ending.kind === 'exited' && next.ending.code === 0
      }
      await until(again, 'the thread works again', 10_000)
    })

    /** Fills the disk to its last block, as another program could. */
    function fillDisk(): string {
      const path = join(disk, 'ballast')
      execFileSync('fallocate', ['-l', `${freeBytes() - mib}`, path])
      const file = openSync(path, 'a')
      expect(() => {
        for (;;) writeSync(file, Buffer.alloc(4096, 1))
      }).toThrow(/ENOSPC/)
      closeSync(file)
      return path
    }
  })
})
