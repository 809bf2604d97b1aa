/**
 * The child process of slot-bench.ts: an engine in a private mount namespace, which provides slots to its
 * parent. It ends with its parent.
 */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Cleanup } from '../../src/base/cleanup.ts'
import type { Stream } from '../../src/base/run.ts'
import { openImage } from '../../src/engine/images/image.ts'
import type { Machine } from '../../src/engine/machine.ts'
import type { RuntimeName } from '../../src/engine/settings.ts'
import { createSlot, type SlotMachine } from '../../src/engine/slots/create-slot.ts'
import { idsPerSlot } from '../../src/engine/slots/id-ranges.ts'
import type { Slot, SlotRun } from '../../src/engine/slots/slot.ts'
import { builtGuest } from './built-guest.ts'
import { engineMachine } from './engine-machine.ts'
import type { Answer, Asked, Request } from './slot-bench.ts'

/** Of each stream of a run; what comes after is counted by the engine and not handed on. */
const keptOutputBytes = 1024 * 1024

const undo = new Cleanup()
const slots = new Map<string, Slot>()
const runs = new Map<string, SlotRun>()
const images = new Map<string, Promise<SlotMachine>>()
let host: Machine | undefined

/** Whoever asked may be gone at any moment; what is to be cleaned up then must not die of that. */
const say = (answer: Answer): void => {
  if (process.connected) process.send?.(answer, undefined, {}, () => undefined)
}

async function open(runtime: RuntimeName): Promise<Asked['open']> {
  const machine = engineMachine(runtime)
  // Apart from those of other suites: some of them end what lives under their ids.
  machine.settings.idBase = 0x6000_0000 + (process.pid % 64) * 64 * idsPerSlot
  undo.add(() => {
    const left = machine.leftovers()
    machine.remove()
    if (left.length > 0) throw new Error(`the engine left ${left.join(', ')}`)
  })
  const opened = await machine.open()
  undo.add(() => opened.close())
  host = opened
  const { stateDir, instanceId } = machine.settings
  const { runtimeVersion, languages } = opened
  return { pid: process.pid, stateDir, instanceId, cgroups: opened.cgroups.version, runtimeVersion, languages }
}

/** Slots with another guest: same machine, same runtime, another root. */
function hostWith(guest: string): Promise<SlotMachine> {
  const base = opened()
  let made = images.get(guest)
  if (made === undefined) {
    const dir = mkdtempSync(join(tmpdir(), 'glovebox-bench-image-'))
    chmodSync(dir, 0o711)
    undo.add(() => rmSync(dir, { recursive: true, force: true }))
    const pythonZygotePath = join(builtGuest('static'), 'python-zygote.so')
    made = openImage(dir, { guestPath: guest, nodePath: process.execPath, pythonZygotePath }).then((image) => ({
      ...base,
      excess: () => 0,
      image: undo.owns(image),
    }))
    images.set(guest, made)
  }
  return made
}

function opened(): Machine {
  if (host === undefined) throw new Error('the bench is not open')
  return host
}

function slotOf(id: string): Slot {
  const slot = slots.get(id)
  if (slot === undefined) throw new Error(`no slot ${id}`)
  return slot
}

function start(request: Extract<Request, { verb: 'start' }>): void {
  const kept: Record<Stream, number> = { stdout: 0, stderr: 0 }
  const { run: id, program, limits } = request
  const run = slotOf(request.slot).execute(
    { ...program, limits },
    {
      running: () => say({ run: id, kind: 'running' }),
      excess: () => 0,
      image: () => undefined,
      output: (stream, bytes) => {
        const room = keptOutputBytes - kept[stream]
        kept[stream] += bytes.length
        if (room > 0) say({ run: id, kind: 'output', stream, bytes: Buffer.from(bytes.subarray(0, room)) })
      },
    },
  )
  runs.set(id, run)
  void run.ended.then((result) => {
    runs.delete(id)
    say({ run: id, kind: 'ended', result })
  })
}

async function answer(request: Request): Promise<Asked[Request['verb']]> {
  switch (request.verb) {
    case 'open':
      return open(request.runtime)
    case 'slot': {
      const slot = await createSlot(request.guest === undefined ? opened() : await hostWith(request.guest))
      slots.set(slot.id, slot)
      slot.bind(request.limits)
      return { id: slot.id, pid: slot.pid }
    }
    case 'start':
      start(request)
      return
    case 'stop':
      runs.get(request.run)?.stop(request.cause)
      return
    case 'state': {
      const { healthy, unhealthyReason, runs: count } = slotOf(request.slot)
      return { healthy, unhealthyReason, runs: count }
    }
    case 'destroy':
      await slotOf(request.slot).destroy()
      return
    case 'memory':
      return process.memoryUsage().rss
    case 'close':
      await close()
      return
  }
}

async function close(): Promise<void> {
  const failures = await Promise.allSettled([...slots.values()].map((slot) => slot.destroy()))
  await undo.run()
  const failed = failures.find((outcome) => outcome.status === 'rejected')
  if (failed) throw failed.reason
}

process.on('message', (request: Request) => {
  answer(request).then(
    (value) => say({ id: request.id, kind: 'done', value }),
    (error) => say({ id: request.id, kind: 'error', message: `${error?.name}: ${error?.message}` }),
  )
})
process.on('disconnect', () => {
  close().finally(() => process.exit())
})
