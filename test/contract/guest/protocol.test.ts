/** guest/PROTOCOL.md, from the side of the runner: the order of frames, the states of a run, and protocol violations. */
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, readlinkSync, rmdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { builtGuest, type GuestBuild } from '../../support/built-guest.ts'
import {
  frame,
  kinds,
  openSlot,
  preparation,
  record,
  Slot,
  type SlotOptions,
  slotsMissing,
} from '../../support/guest-driver.ts'

const true_ = preparation({ args: ['true'] })
const sleeper = preparation({ args: ['sleep', '86400'] })
const credit = (bytes: number): Buffer => {
  const payload = Buffer.alloc(4)
  payload.writeUInt32LE(bytes)
  return payload
}
const header = (length: number, run: number, kind: number, zeros = [0, 0, 0]): Buffer => {
  const bytes = frame(kind, run)
  bytes.writeUInt32LE(length, 0)
  bytes.set(zeros, 9)
  return bytes
}
/** `true_` without one kind of record, or with additional ones. */
const prepared = (without: number, ...more: Buffer[]): Buffer => {
  const parts: Buffer[] = []
  for (let at = 0; at < true_.length; at += 5 + true_.readUInt32LE(at + 1))
    if (true_.readUInt8(at) !== without) parts.push(true_.subarray(at, at + 5 + true_.readUInt32LE(at + 1)))
  return Buffer.concat([...parts, ...more])
}

/** What the runner must never send. Each ends the guest with 70, after printing the reason. */
const broken: [string, Buffer[]][] = [
  ['a kind that is not known', [frame(10, 1)]],
  ['a kind of the other direction', [frame(kinds.exited, 1)]],
  ['a payload longer than the limit', [header(1048577, 1, kinds.prepare)]],
  ['a payload of 4 GiB', [header(0xffffffff, 1, kinds.code)]],
  ['bytes that must be zero', [header(0, 1, kinds.kill, [0, 1, 0])]],
  ['GO before a run', [frame(kinds.go, 1)]],
  ['CODE before a run', [frame(kinds.code, 1, Buffer.from('x'))]],
  ['KILL of a run to come', [frame(kinds.kill, 1)]],
  ['CREDIT of a run to come', [frame(kinds.prepare, 1, sleeper), frame(kinds.credit, 2, credit(1))]],
  ['CREDIT without a number', [frame(kinds.prepare, 1, sleeper), frame(kinds.credit, 1)]],
  ['run number 0', [frame(kinds.prepare, 0, true_)]],
  ['PREPARE in another run', [frame(kinds.prepare, 1, sleeper), frame(kinds.prepare, 2, true_)]],
  ['GO of another run', [frame(kinds.prepare, 1, sleeper), frame(kinds.go, 2)]],
  [
    'GO before the source has come',
    [frame(kinds.prepare, 1, preparation({ args: ['cat'], code: 'x' })), frame(kinds.go, 1)],
  ],
  [
    'more CODE than announced',
    [frame(kinds.prepare, 1, preparation({ args: ['cat'], code: 'x' })), frame(kinds.code, 1, Buffer.from('xy'))],
  ],
  [
    'STDIN that was not announced',
    [frame(kinds.prepare, 1, preparation({ args: ['cat'], code: 'x' })), frame(kinds.stdin, 1, Buffer.from('x'))],
  ],
  ['SPARE of a run', [frame(kinds.spare, 1, record(1, '/usr/bin/true'))]],
  ['SPARE after PREPARE', [frame(kinds.prepare, 1, sleeper), frame(kinds.spare, 0, record(1, '/usr/bin/true'))]],
  ['SPARE twice', [1, 2].map(() => frame(kinds.spare, 0, record(1, '/usr/bin/true')))],
  ['SPARE without a program', [frame(kinds.spare, 0)]],
  ['a spare interpreter for a run', [frame(kinds.prepare, 1, Buffer.concat([true_, record(25, 1)]))]],
  ['an empty PREPARE', [frame(kinds.prepare, 1)]],
  ['a record cut short', [frame(kinds.prepare, 1, true_.subarray(0, -1))]],
  [
    'a record longer than the frame',
    [frame(kinds.prepare, 1, Buffer.concat([true_, Buffer.from([1, 255, 255, 255, 255])]))],
  ],
  ['an unknown record', [frame(kinds.prepare, 1, Buffer.concat([true_, record(15, 'x')]))]],
  ['a repeated record', [frame(kinds.prepare, 1, Buffer.concat([true_, record(9, 5n)]))]],
  ['no command line', [frame(kinds.prepare, 1, prepared(1))]],
  ['a NUL in the command line', [frame(kinds.prepare, 1, prepared(0, record(1, 'a\0b')))]],
  ['a variable without a name', [frame(kinds.prepare, 1, prepared(0, record(2, '=x')))]],
  ['a variable without a value', [frame(kinds.prepare, 1, prepared(0, record(2, 'NAME')))]],
  ['a home with a way up', [frame(kinds.prepare, 1, prepared(3, record(3, '/home/../..')))]],
  ['a relative home', [frame(kinds.prepare, 1, prepared(3, record(3, 'home')))]],
  ['the root as home', [frame(kinds.prepare, 1, prepared(3, record(3, '/')))]],
  ['a way out of the dock', [frame(kinds.prepare, 1, Buffer.concat([true_, record(14, '../image')]))]],
  ['a code file elsewhere', [frame(kinds.prepare, 1, prepared(4, record(4, '../x')))]],
  ['a tmp without bounds', [frame(kinds.prepare, 1, prepared(5, record(5, 0n)))]],
  ['a quantity of the wrong width', [frame(kinds.prepare, 1, prepared(5, record(5, 1)))]],
  ['a quantity beyond counting', [frame(kinds.prepare, 1, prepared(13, record(13, 1n << 63n)))]],
  ['no memory', [frame(kinds.prepare, 1, prepared(18, record(18, 0n)))]],
  ['no processors', [frame(kinds.prepare, 1, prepared(10, record(10, 0)))]],
]

interface Seen {
  /** In each pid namespace, that of the host first. */
  pids: number[]
  seccomp: string | undefined
  capabilities: string | undefined
}

/** The guest and everything in its pid namespace. */
function processesOf(guestPid: number): Seen[] {
  const namespaceOf = (pid: string) => readlinkSync(`/proc/${pid}/ns/user`)
  const slot = namespaceOf(String(guestPid))
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        if (namespaceOf(pid) !== slot) return []
        const status = readFileSync(`/proc/${pid}/status`, 'utf8')
        const line = (name: string) => new RegExp(`^${name}:\\s+(.*)$`, 'm').exec(status)?.[1]
        return [
          {
            pids: (line('NSpid') ?? '').split('\t').map(Number),
            seccomp: line('Seccomp'),
            capabilities: line('CapEff'),
          },
        ]
      } catch {
        return [] // ended meanwhile
      }
    })
}

const builds: GuestBuild[] = ['static', 'sanitized']

describe.skipIf(slotsMissing !== undefined).each(builds)('the %s guest', (build) => {
  const options: SlotOptions = { build }

  describe('exits with 70 on', () => {
    it.each(broken)('%s', async (_, frames) => {
      const slot = await openSlot({ ...options, foreground: true })
      try {
        slot.send(...frames)
        expect(await slot.exitCode).toBe(70)
        expect(slot.diagnostics).toMatch(/^glovebox guest: .+\n/)
        expect(slot.diagnostics).not.toContain('Sanitizer')
      } finally {
        await slot.close()
      }
    })
  })

  it('ends when its standard input does, with everything that runs in it', async () => {
    const slot = await openSlot({ ...options, foreground: true })
    const run = slot.prepare({ args: ['sleep', '86400'] })
    const waiting = await slot.expect(kinds.waiting)
    slot.send(frame(kinds.go, run))
    expect(waiting.payload.readUInt32LE(0)).toBeGreaterThan(1)
    const pid = slot.pid
    slot.hangUp()
    expect(await slot.exitCode).toBe(0)
    expect(existsSync(`/proc/${pid}`)).toBe(false)
    await slot.close()
  })

  const killJailer = (slot: Slot) =>
    process.kill(processesOf(slot.pid).find(({ pids }) => pids[1] === slot.jailer)!.pids[0]!, 'SIGKILL')

  it('lets a run end whose jailer is killed, and then ends the slot', async () => {
    const slot = await openSlot({ ...options, foreground: true })
    const run = slot.prepare({ args: ['sh', '-c', 'read line; echo $line'], stdin: 'still here\n', codeFile: 'unused' })
    await slot.expect(kinds.waiting)
    killJailer(slot)
    slot.send(frame(kinds.go, run))
    expect((await slot.finish(run)).stdout.toString()).toBe('still here\n')
    expect(await slot.exitCode).toBe(70)
    expect(slot.diagnostics).toContain('the jailer died')
    await slot.close()
  })

  it('ends when its jailer is killed between runs', async () => {
    const slot = await openSlot({ ...options, foreground: true })
    killJailer(slot)
    expect(await slot.exitCode).toBe(70)
    await slot.close()
  })

  it('does not start on an image whose mount points are symbolic links', async () => {
    const slot = new Slot({
      ...options,
      foreground: true,
      image: (path) => {
        rmdirSync(join(path, 'tmp'))
        symlinkSync('/scratch', join(path, 'tmp'))
      },
    })
    expect(await slot.exitCode).toBe(70)
    expect(slot.diagnostics).toContain("the image's /tmp")
    await slot.close()
  })

  describe('in one slot', () => {
    let slot: Slot

    beforeAll(async () => {
      slot = await openSlot(options)
    })
    afterAll(() => slot?.close())
    /** A plain run still works: the previous state left nothing behind. */
    const works = async () => expect(await slot.run({ args: ['true'] })).toMatchObject({ how: 'exited', value: 0 })

    it('reports the main process by its pid in the slot, jailed already and not yet running', async () => {
      const run = slot.prepare({ args: ['sleep', '86400'] })
      const pid = (await slot.expect(kinds.waiting)).payload.readUInt32LE(0)
      const seen = processesOf(slot.pid).filter((one) => one.pids[1] === pid)
      expect(seen).toMatchObject([
        { pids: [expect.any(Number), pid, 2], seccomp: '2', capabilities: '0000000000000000' },
      ])
      const main = seen[0]!
      expect(readFileSync(`/proc/${main.pids[0]}/cmdline`, 'utf8')).not.toContain('sleep')
      slot.send(frame(kinds.go, run))
      while (!readFileSync(`/proc/${main.pids[0]}/cmdline`, 'utf8').includes('sleep'))
        await new Promise((resolve) => setTimeout(resolve, 5))
      slot.send(frame(kinds.kill, run))
      await slot.finish(run)
      const left = processesOf(slot.pid).map(({ pids }) => pids[1] ?? 0)
      expect(left.toSorted((a, b) => a - b)).toEqual([1, slot.jailer])
    })
    it('obeys KILL while the source code arrives', async () => {
      const payload = preparation({ args: ['cat'], code: 'much' })
      const run = slot.nextRun()
      slot.send(frame(kinds.prepare, run, payload), frame(kinds.code, run, Buffer.from('m')), frame(kinds.kill, run))
      expect(await slot.finish(run)).toMatchObject({ how: 'killed' })
      await works()
    })
    it('obeys KILL while the jail is created', async () => {
      for (let times = 0; times < 20; times++) {
        const run = slot.prepare({ args: ['sleep', '86400'] })
        slot.send(frame(kinds.kill, run))
        expect(await slot.finish(run)).toMatchObject({ how: 'killed' })
      }
      await works()
    })
    it('obeys KILL while the main process waits', async () => {
      const run = slot.prepare({ args: ['sleep', '86400'] })
      await slot.expect(kinds.waiting)
      slot.send(frame(kinds.kill, run))
      expect(await slot.finish(run)).toMatchObject({ how: 'killed' })
      await works()
    })
    it('accepts GO and CREDIT that cross the end of the run', async () => {
      const run = slot.prepare({ args: ['sleep', '86400'] })
      await slot.expect(kinds.waiting)
      slot.send(frame(kinds.kill, run), frame(kinds.go, run), frame(kinds.credit, run, credit(5)))
      expect(await slot.finish(run)).toMatchObject({ how: 'killed' })
      slot.send(frame(kinds.credit, run, credit(5)), frame(kinds.kill, run))
      await works()
    })
    it('obeys KILL while the program runs, and sends what it wrote before', async () => {
      const run = slot.prepare({ args: ['bash', '-c', 'trap "" TERM INT; setsid sleep 86400 & echo started; wait'] })
      await slot.expect(kinds.waiting)
      slot.send(frame(kinds.go, run))
      expect((await slot.expect(kinds.stdout)).payload.toString()).toBe('started\n')
      slot.send(frame(kinds.kill, run))
      expect(await slot.finish(run)).toMatchObject({ how: 'killed' })
      await works()
    })
    it('obeys KILL while the program writes without end', async () => {
      const run = slot.prepare({ args: ['yes'] })
      await slot.expect(kinds.waiting)
      slot.send(frame(kinds.go, run))
      await slot.expect(kinds.stdout)
      slot.send(frame(kinds.kill, run))
      expect(await slot.finish(run)).toMatchObject({ how: 'killed' })
      await works()
    })
    it('sends EXITED without further credit when the output used exactly all of it', async () => {
      const run = slot.prepare({ args: ['printf', '12345'], credit: 5 })
      await slot.expect(kinds.waiting)
      slot.send(frame(kinds.go, run))
      const outcome = await slot.finish(run, false)
      expect([outcome.how, outcome.stdout.toString()]).toEqual(['exited', '12345'])
    })
    it('delays EXITED until the output before it has credit', async () => {
      const run = slot.prepare({ args: ['printf', '12345'], credit: 2 })
      await slot.expect(kinds.waiting)
      slot.send(frame(kinds.go, run))
      expect((await slot.expect(kinds.stdout)).payload.toString()).toBe('12')
      slot.send(frame(kinds.credit, run, credit(1)))
      expect((await slot.expect(kinds.stdout)).payload.toString()).toBe('3')
      slot.send(frame(kinds.credit, run, credit(100)))
      const outcome = await slot.finish(run, false)
      expect([outcome.how, outcome.stdout.toString()]).toEqual(['exited', '45'])
    })
    it('accepts standard input while output has no credit', async () => {
      const run = slot.prepare({ args: ['cat'], stdin: Buffer.alloc(3 << 20, 'z'), credit: 1 })
      await slot.expect(kinds.waiting)
      slot.send(frame(kinds.go, run))
      await slot.expect(kinds.stdout)
      slot.send(frame(kinds.credit, run, credit(16 << 20)))
      expect((await slot.finish(run)).stdout.length).toBe((3 << 20) - 1)
    })
    it('keeps the order within a stream and puts all output before EXITED', async () => {
      const outcome = await slot.run({ args: ['bash', '-c', 'for i in {1..20000}; do echo $i; done'] })
      expect(outcome.stdout.toString()).toBe(`${Array.from({ length: 20000 }, (_, at) => at + 1).join('\n')}\n`)
      expect(outcome.frames.findIndex((one) => one.kind === kinds.exited)).toBe(outcome.frames.length - 1)
    })
    it('sends FAILED with the reason when the jail cannot be created as requested', async () => {
      const run = slot.nextRun()
      slot.send(frame(kinds.prepare, run, prepared(3, record(3, '/home/nobody'))))
      expect((await slot.expect(kinds.failed)).payload.toString()).toBe(
        "the image's /home/nobody: No such file or directory",
      )
      const outcome = await slot.run({ args: ['true'], openFiles: 2 ** 30 })
      expect(outcome).toMatchObject({ how: 'failed', text: 'set RLIMIT_NOFILE: Operation not permitted' })
      await works()
    })
    it('accepts a PREPARE of maximum size', async () => {
      const env = Object.fromEntries(Array.from({ length: 10 }, (_, at) => [`BIG${at}`, 'v'.repeat(100_000)]))
      const outcome = await slot.run({ args: ['sh', '-c', 'printenv BIG0 | wc -c; printenv BIG9 | wc -c'], env })
      expect(outcome.stdout.toString()).toBe('100001\n100001\n')
    })
    it('accepts frames that arrive byte by byte', async () => {
      const run = slot.nextRun()
      for (const byte of Buffer.concat([frame(kinds.prepare, run, true_)])) {
        slot.send(Buffer.of(byte))
        await new Promise((resolve) => setImmediate(resolve))
      }
      await slot.expect(kinds.waiting)
      slot.send(frame(kinds.go, run))
      expect(await slot.finish(run)).toMatchObject({ how: 'exited', value: 0 })
    })
  })
})

describe('the parsers of frames and records', () => {
  it('survive mutated input under sanitizers', () => {
    const seed = String(Date.now())
    const report = execFileSync(join(builtGuest('sanitized'), 'guest-fuzz'), ['5', seed]).toString()
    expect(report).toMatch(/^streams \d{2,} frames/)
  })
})
