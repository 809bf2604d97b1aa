import { setTimeout as sleep } from 'node:timers/promises'
import type { Call, KernelLanguage } from '../src/core/sandboxes/kernels/calls.ts'
import { openKernels } from '../src/core/sandboxes/kernels/kernels.ts'
import { callIn } from '../test/support/kernel-calls.ts'
import { sandboxRunner, sandboxSpec } from '../test/support/sandbox-runner.ts'

/** Between calls, so that each finds an idle sandbox. */
const gapMs = 10

/** A call of each language that shows or computes a value. */
const warm: readonly { language: KernelLanguage; code: string }[] = [
  { language: 'python', code: 'x+1' },
  { language: 'node', code: 'x+1' },
  { language: 'bash', code: 'echo $((x+1))' },
]

export interface KernelFigures {
  /** Memory of a sandbox with an idle Python kernel. */
  idleBytes: number
  calls: { what: string; tookMs: readonly number[] }[]
}

/** Measures stateful code at the runner, without HTTP: a warm call of each language and a rewind. */
export async function measureKernels(rounds: number): Promise<KernelFigures> {
  const runner = await sandboxRunner()
  try {
    const spec = sandboxSpec()
    const { sandboxId } = spec
    const { sandboxes } = runner.client
    await sandboxes.start(spec)
    const kernels = openKernels(sandboxes.processes, { states: sandboxes.states })
    const call = callIn(kernels, sandboxId)
    const timed = async (work: () => Promise<unknown>, before?: () => Promise<unknown>) => {
      const times: number[] = []
      for (let round = 0; round < rounds; round += 1) {
        await before?.()
        await sleep(gapMs)
        const startedMs = performance.now()
        await work()
        times.push(performance.now() - startedMs)
      }
      return times
    }
    await call('python', 'x = 1')
    await sleep(1_000)
    const [figures] = await sandboxes.figures([sandboxId])
    const calls: KernelFigures['calls'] = []
    for (const { language, code } of warm) {
      await call(language, language === 'bash' ? 'x=1' : 'x = 1')
      calls.push({ what: `warm ${language} ${code}`, tookMs: await timed(() => call(language, code)) })
    }
    const { id: context } = await kernels.create(sandboxId, { language: 'python', rewind: 4 })
    const python = (code: string, options: Partial<Call> = {}) => call('python', code, { context, ...options })
    await python('x = 1')
    calls.push({ what: 'warm python x+1 with frozen copies', tookMs: await timed(() => python('x+1')) })
    const rewind = () => kernels.rewind(sandboxId, { context, calls: 1 })
    calls.push({ what: 'rewind by one call', tookMs: await timed(rewind, () => python('x = 2')) })
    const keeping = await kernels.create(sandboxId, { language: 'python', rewind: 4, files: true })
    const edit = () => call('python', 'open("n", "a").write("x")', { context: keeping.id })
    await edit()
    calls.push({ what: 'warm python that writes a file, with its disk kept', tookMs: await timed(edit) })
    const rewindFiles = () => kernels.rewind(sandboxId, { context: keeping.id, calls: 1, files: true })
    calls.push({ what: 'rewind by one call with files', tookMs: await timed(rewindFiles, edit) })
    return { idleBytes: figures?.memoryBytes ?? Number.NaN, calls }
  } finally {
    await runner.close()
  }
}
