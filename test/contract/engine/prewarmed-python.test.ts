import { describe, expect, it } from 'vitest'
import type { Slot } from '../../../src/engine/slots/slot.ts'
import { installed, prewarm, start, testLimits } from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { pythonPrograms } from '../../support/python-programs.ts'
import { twoSlots } from '../../support/two-slots.ts'

const runtime = (['crun', 'runc'] as const).find(installed)

inPrivateMounts(import.meta.filename, () => {
  describe.skipIf(runtime === undefined)('a python process forked from its host', () => {
    const slots = twoSlots(runtime, testLimits)

    /** Everything that is observable of a run, however it was started. */
    const observe = async (slot: Slot, code: string, env: Record<string, string> = {}) => {
      const { ending, stdout, stderr, outputBytes, oomKills } = await start(slot, 'python', code, { env }).ran
      // Addresses differ from one interpreter to the next anyway.
      const said = [stdout, stderr].map((text) => text.replaceAll(/\b0x[0-9a-f]{6,}\b/g, '0x…'))
      return { ending, said, outputBytes, oomKills }
    }
    const observeHosted = async (code: string, env: Record<string, string> = {}) => {
      await prewarm(slots.prewarmed, 'python', env)
      return observe(slots.prewarmed, code, env)
    }

    it('is really forked: its parent is outside its jail', async () => {
      const code = 'import os; print(os.getppid())'
      expect((await observe(slots.fresh, code)).said[0]).toBe('1\n')
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
      expect(await observe(slots.fresh, code)).toMatchObject(expected)
    })

    for (const [does, code] of Object.entries(pythonPrograms)) {
      it(`behaves like a new one for a program that ${does}`, async () => {
        expect(await observeHosted(code)).toEqual(await observe(slots.fresh, code))
      })
    }
  })
})
