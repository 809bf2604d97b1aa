import { tmpdir } from 'node:os'
import { afterAll, describe, expect, it } from 'vitest'
import { displaysOfOrgMaxBytes, HeldDisplays } from '../../../src/core/sandboxes/held-displays.ts'
import type { CallEvent } from '../../../src/core/sandboxes/kernels/calls.ts'
import { FrameMemory } from '../../../src/core/sandboxes/kernels/frame-memory.ts'
import { contextsMax, openKernels } from '../../../src/core/sandboxes/kernels/kernels.ts'
import { callIn, collect, kernelsInSources } from '../../support/kernel-calls.ts'
import { PlainProcesses } from '../../support/plain-processes.ts'

const processes = new PlainProcesses({ cwd: tmpdir(), env: { PATH: '/usr/bin:/bin' } })
const options = { dir: kernelsInSources, graceMs: 1_000 }
const kernels = openKernels(processes, options)
const call = callIn(kernels, 'sbx')

afterAll(() => processes[Symbol.asyncDispose]())

describe('contexts of a sandbox', () => {
  it('have states of their own, with a default one for each language', async () => {
    const { id } = await kernels.create('sbx', { language: 'python', cwd: '/usr' })
    await call('python', 'x = 1')
    await call('python', 'x = 2', { context: id })
    expect((await call('python', 'x')).result).toBe('1')
    expect((await call('python', 'import os; x, os.getcwd()', { context: id })).result).toBe("(2, '/usr')")
    expect((await kernels.list('sbx')).map(({ id, state }) => [id, state])).toEqual([
      [id, 'idle'],
      ['python', 'idle'],
    ])
    await expect(call('bash', 'true', { context: id })).rejects.toMatchObject({ code: 'context_language' })
    expect(await kernels.remove('sbx', id)).toBe(true)
    await expect(call('python', 'x', { context: id })).rejects.toMatchObject({ code: 'context_unknown' })
  })

  it('are limited in number', async () => {
    const used = (await kernels.list('sbx')).length
    const more = await Promise.all(
      Array.from({ length: contextsMax - used }, () => kernels.create('sbx', { language: 'bash' })),
    )
    await expect(kernels.create('sbx', { language: 'bash' })).rejects.toMatchObject({ code: 'contexts_full' })
    for (const { id } of more) await kernels.remove('sbx', id)
  })

  it('cannot fill the memory of the server with values that they display in part', async () => {
    const memory = new FrameMemory(20 * 1024 * 1024)
    const bounded = openKernels(processes, { ...options, memory })
    const callBounded = callIn(bounded, 'sbx-partial')
    /** Finds the channel of its kernel, begins a frame there, and sends most of it. */
    const begin = `
import os
links = {n: os.readlink(f'/proc/self/fd/{n}') for n in range(200) if os.path.exists(f'/proc/self/fd/{n}')}
streams = [links[n] for n in (0, 1, 2) if n in links]
channel = next(n for n, link in links.items() if n > 2 and link not in streams and link.startswith(('socket:', 'pipe:')))
data = b"display x 16000000\\n" + b"x" * 8_000_000
while data: data = data[os.write(channel, data):]
`
    const contexts = await Promise.all([1, 2, 3].map(() => bounded.create('sbx-partial', { language: 'python' })))
    const calls = []
    for (const [n, { id: context }] of contexts.entries()) {
      calls.push(callBounded('python', begin, { context, timeoutMs: 60_000 }))
      if (n < 2) await expect.poll(() => memory.bytes).toBeGreaterThan((n + 1) * 7_900_000)
    }
    // Its answer follows in the same frame, so a call like this ends only when its interpreter does.
    expect((await calls[0])?.ended.ending.kind).toBe('kernel_ended')
    expect(memory.bytes).toBeLessThanOrEqual(20 * 1024 * 1024)
    for (const { id } of contexts) await bounded.remove('sbx-partial', id)
    await Promise.all(calls)
    expect(memory.bytes).toBe(0)
  })

  it('cannot fill it with what the calls of one organization display either', () => {
    const held = new HeldDisplays()
    const half = displaysOfOrgMaxBytes / 2
    expect([held.hold('a', half), held.hold('a', half), held.hold('a', 1), held.hold('b', half)]).toEqual([
      ...[true, true, false, true],
    ])
    held.release('a', half)
    expect(held.hold('a', half)).toBe(true)
  })

  it('start with an empty state after a restart', async () => {
    await call('python', 'x = 3')
    await kernels.restart('sbx', 'python')
    const { result, ended } = await call('python', '"x" in globals()')
    expect([result, ended.count, ended.lostBefore]).toEqual(['False', 1, undefined])
  })

  it('run the calls of one context in order, and those of several side by side', async () => {
    const { id } = await kernels.create('sbx', { language: 'bash' })
    const fifo = `${tmpdir()}/glovebox-kernels-fifo-${process.pid}`
    await call('bash', `mkfifo ${fifo}`)
    const reading = call('bash', `cat ${fifo}`)
    await call('bash', `echo through > ${fifo}; rm ${fifo}`, { context: id })
    expect((await reading).stdout).toBe('through\n')
    const order = await Promise.all(
      [1, 2, 3].map((n) => call('python', `order = globals().get("order", []) + [${n}]\norder`)),
    )
    expect(order.map(({ result }) => result)).toEqual(['[1]', '[1, 2]', '[1, 2, 3]'])
    await kernels.remove('sbx', id)
  })

  it('interrupt the code of a caller that leaves, and keep the state', async () => {
    await call('python', 'kept = 4')
    const code = 'import time\nprint("started", flush=True)\ntime.sleep(60)'
    for await (const event of kernels.run(
      'sbx',
      { language: 'python', code, timeoutMs: 60_000 },
      new AbortController().signal,
    ))
      if (event.kind === 'output') break
    expect((await call('python', 'kept')).result).toBe('4')
  })

  it('interrupt a call on request', async () => {
    const events = kernels.run(
      'sbx',
      { language: 'bash', code: 'echo started; sleep 60', timeoutMs: 60_000 },
      new AbortController().signal,
    )
    const first = (await events.next()).value as CallEvent
    expect(first.kind).toBe('output')
    expect(await kernels.interrupt('sbx', 'bash')).toBe(true)
    expect((await collect(events)).ended.ending).toEqual({ kind: 'interrupted' })
    expect(await kernels.interrupt('sbx', 'bash')).toBe(false)
  })

  it('are found with their state by the next front', async () => {
    const { id } = await kernels.create('sbx', { language: 'python' })
    await call('python', 'x = 5', { context: id })
    await call('bash', 'y=6')
    const next = openKernels(processes, options)
    const later = callIn(next, 'sbx')
    expect((await later('python', 'x', { context: id })).result).toBe('5')
    expect((await later('bash', 'echo $y')).stdout).toBe('6\n')
  })

  it('interrupt a call that an earlier front has left behind', async () => {
    const lone = new PlainProcesses({ cwd: tmpdir() })
    await using _end = lone
    const first = openKernels(lone, options)
    const started = first.run(
      's',
      { language: 'bash', code: 'z=7; echo on; sleep 60', timeoutMs: 60_000 },
      new AbortController().signal,
    )
    await started.next()
    const later = callIn(openKernels(lone, options), 's')
    const { stdout } = await later('bash', 'echo $z')
    expect(stdout).toBe('7\n')
  })

  it('report an interpreter that is missing', async () => {
    await using bare = new PlainProcesses({ cwd: tmpdir(), env: { PATH: '/nonexistent' } })
    await expect(callIn(openKernels(bare, options), 's')('python', '1')).rejects.toMatchObject({
      code: 'interpreter_missing',
    })
  })
})
