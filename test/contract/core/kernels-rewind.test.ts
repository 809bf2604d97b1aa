import { tmpdir } from 'node:os'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openKernels } from '../../../src/core/sandboxes/kernels/kernels.ts'
import { callIn, kernelsInSources } from '../../support/kernel-calls.ts'
import { PlainProcesses } from '../../support/plain-processes.ts'

const processes = new PlainProcesses({ cwd: tmpdir(), env: { PATH: '/usr/bin:/bin' } })
const kernels = openKernels(processes, { dir: kernelsInSources, graceMs: 1_000 })
const call = callIn(kernels, 'sbx')
let context = ''
const python = (code: string, options = {}) => call('python', code, { context, ...options })
const rewind = (calls: number) => kernels.rewind('sbx', { context, calls })

beforeAll(async () => {
  context = (await kernels.create('sbx', { language: 'python', rewind: 4 })).id
})
afterAll(() => processes[Symbol.asyncDispose]())

describe('a Python context that can be rewound', () => {
  it('goes back to the state before its last calls, as often as states are kept', async () => {
    await python('x = 1\nimport random\nrandom.seed(5)')
    await python('x = 2; first = random.random()')
    await python('x = 3')
    expect((await kernels.list('sbx'))[0]?.rewindable).toBe(3)
    expect(await rewind(2)).toEqual({ calls: 2, notRewound: [] })
    const back = await python('x, "first" in globals(), random.random()')
    expect(back.result).toBe('(1, False, 0.6229016948897019)')
    expect(back.ended.count).toBe(2)
    await rewind(1)
    expect((await python('x')).result).toBe('1')
  })

  it('is refused beyond the states that are kept', async () => {
    for (let i = 0; i < 6; i += 1) await python(`x = ${i}`)
    await expect(rewind(5)).rejects.toMatchObject({ code: 'rewind_unavailable' })
    await rewind(4)
    expect((await python('x')).result).toBe('1')
  })

  it('has no state after a call that could not be copied, and goes back to no other in its place', async () => {
    await python('x = 10')
    await python('import os\nfork = os.fork\ndef full(): raise BlockingIOError\nos.fork = full\nx = 11')
    await python('x = 12\nos.fork = fork')
    await expect(rewind(1)).rejects.toMatchObject({
      code: 'rewind_unavailable',
      message: expect.stringContaining('before its last 2, 3, 4 calls'),
    })
    await rewind(2)
    expect((await python('x')).result).toBe('10')
    await python('import os\nfork = os.fork\ndef full(): raise BlockingIOError\nos.fork = full\nx = 11')
    const crashed = await python('os._exit(3)')
    expect(crashed.ended).toMatchObject({ state: 'lost' })
    expect((await python('"x" in globals()')).result).toBe('False')
    for (let i = 0; i < 6; i += 1) await python(`x = ${i}`)
  })

  it('says what was not rewound', async () => {
    await python(
      'import threading, time, subprocess\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\np = subprocess.Popen(["sleep", "60"])',
    )
    expect(await rewind(1)).toEqual({ calls: 1, notRewound: ['threads: 1', 'processes: 1'] })
    await python('import os, signal, subprocess\nsubprocess.run(["pkill", "-x", "-g", str(os.getpgrp()), "sleep"])\n;')
  })

  it('has the state before a call that crashed, or that was killed because it did not stop', async () => {
    await python('x = 10')
    const crashed = await python('import os\nx = 11\nprint("out", flush=True)\nos._exit(3)')
    expect(crashed.ended).toMatchObject({
      ending: { kind: 'kernel_ended', ending: { kind: 'exited', code: 3 } },
      state: 'restored',
    })
    expect(crashed.stdout).toBe('out\n')
    expect((await python('x')).ended.lostBefore).toBeUndefined()
    const stuck = await python('x = 12\nsum(iter(int, 1))', { timeoutMs: 200 })
    expect(stuck.ended).toMatchObject({ ending: { kind: 'timed_out' }, state: 'restored' })
    expect((await python('x')).result).toBe('10')
    const signaled = await python('os = __import__("os"); os.kill(os.getpid(), 9)')
    expect(signaled.ended.ending).toEqual({ kind: 'kernel_ended', ending: { kind: 'signaled', signal: 'KILL' } })
  })

  it('keeps its state when it is interrupted', async () => {
    await python('x = 20')
    expect((await python('while True: pass', { timeoutMs: 200 })).ended).toMatchObject({
      ending: { kind: 'timed_out' },
      state: 'kept',
    })
    expect((await python('x')).result).toBe('20')
  })

  it('leaves the code without children of the kernel to wait for', async () => {
    expect((await python('import os\nos.wait()')).ended.ending).toMatchObject({ name: 'ChildProcessError' })
  })

  it('is refused for files, other languages, and contexts that keep no earlier states', async () => {
    const refused = { code: 'rewind_unavailable' }
    await expect(kernels.rewind('sbx', { context, calls: 1, files: true })).rejects.toMatchObject(refused)
    await call('python', '1')
    await expect(kernels.rewind('sbx', { calls: 1 })).rejects.toMatchObject(refused)
    await call('bash', 'true')
    await expect(kernels.rewind('sbx', { context: 'bash', calls: 1 })).rejects.toMatchObject(refused)
  })
})
