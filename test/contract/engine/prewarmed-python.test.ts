import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Machine } from '../../../src/engine/machine.ts'
import { createSlot } from '../../../src/engine/slots/create-slot.ts'
import type { Slot } from '../../../src/engine/slots/slot.ts'
import {
  type EngineMachine,
  engineMachine,
  installed,
  prewarm,
  start,
  testLimits,
} from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { pythonPrograms } from '../../support/python-programs.ts'

const runtime = (['crun', 'runc'] as const).find(installed)

inPrivateMounts(import.meta.filename, () => {
  describe.skipIf(runtime === undefined)('a python process forked from its host', () => {
    let machine: EngineMachine
    let host: Machine
    let [fresh, hosted]: Slot[] = []

    beforeAll(async () => {
      machine = engineMachine(runtime ?? 'auto')
      host = await machine.open()
      ;[fresh, hosted] = [await createSlot(host), await createSlot(host)]
      for (const slot of [fresh, hosted]) slot.bind(testLimits)
    })
    afterAll(async () => {
      await fresh?.destroy()
      await hosted?.destroy()
      await host?.close()
      machine.remove()
      expect(machine.leftovers()).toEqual([])
    })

    /** Everything that is observable of a run, however it was started. */
    const observe = async (slot: Slot, code: string, env: Record<string, string> = {}) => {
      const { ending, stdout, stderr, outputBytes, oomKills } = await start(slot, 'python', code, { env }).ran
      // Addresses differ from one interpreter to the next anyway.
      const said = [stdout, stderr].map((text) => text.replaceAll(/\b0x[0-9a-f]{6,}\b/g, '0x…'))
      return { ending, said, outputBytes, oomKills }
    }
    const observeHosted = async (code: string, env: Record<string, string> = {}) => {
      await prewarm(hosted!, 'python', env)
      return observe(hosted!, code, env)
    }

    it('is really forked: its parent is outside its jail', async () => {
      const code = 'import os; print(os.getppid())'
      expect((await observe(fresh!, code)).said[0]).toBe('1\n')
      expect((await observeHosted(code)).said[0]).toBe('0\n')
    })

    it('answers at once when it exits at once, and makes no process that it does not have to wait for', async () => {
      const code = `
import ctypes, os, platform, signal
CLONE_PARENT, clone = 0x8000, 56 if platform.machine() == 'x86_64' else 220
libc = ctypes.CDLL(None, use_errno=True)
made = libc.syscall(clone, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
if made == 0:
    signal.pause()
for _ in range(4):
    if os.fork() == 0:
        signal.pause()
print(made, os.strerror(ctypes.get_errno()), flush=True)
os._exit(0)
`
      const expected = { ending: { kind: 'exited', code: 0 }, said: ['-1 Operation not permitted\n', ''] }
      expect(await observeHosted(code)).toMatchObject(expected)
      expect(await observe(fresh!, code)).toMatchObject(expected)
    })

    for (const [does, code] of Object.entries(pythonPrograms)) {
      it(`behaves like a new one for a program that ${does}`, async () => {
        expect(await observeHosted(code)).toEqual(await observe(fresh!, code))
      })
    }
  })
})
