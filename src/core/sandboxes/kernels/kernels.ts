import { AsyncQueue } from '../../../base/async-queue.ts'
import { wallMs } from '../../../base/clock.ts'
import { Refusal } from '../../../base/errors.ts'
import { newId } from '../../../base/ids.ts'
import type { SandboxProcesses } from '../../../runner/protocol/sandboxes.ts'
import { type Call, type CallEvent, type Context, type Kernels, kernelLanguages, kernelOf } from './calls.ts'
import { KernelContext, type KernelDeps, type NewContext } from './context.ts'
import { causeOf } from './endings.ts'
import { FrameMemory } from './frame-memory.ts'
import { contextOf, kernelsDir } from './programs.ts'

/** Contexts of one sandbox, default ones included: each is a process with the memory of an interpreter. */
export const contextsMax = 8

/** Frozen copies that a Python context can keep. */
export const rewindMax = 32

type Contexts = Map<string, KernelContext>

/** @param options replace the usual ones in tests. */
export function openKernels(processes: SandboxProcesses, options: Partial<KernelDeps> = {}): Kernels {
  const usual = { dir: kernelsDir, rewind: 0, graceMs: 2_000, startMs: 30_000 }
  const deps: KernelDeps = { processes, memory: new FrameMemory(), ...usual, ...options }
  /** The contexts of each sandbox that was used; found among its processes at first, where an earlier front left them. */
  const sandboxes = new Map<string, Promise<Contexts>>()
  const openedAtMs = wallMs()
  /** Why the state of default contexts was lost that an earlier front knew, by sandbox and context. */
  const lost = new Map<string, Map<string, string>>()

  const contextsOf = (sandboxId: string): Promise<Contexts> => {
    const known = sandboxes.get(sandboxId)
    if (known) return known
    const found = findContexts(deps, sandboxId)
    sandboxes.set(sandboxId, found)
    found.catch(() => sandboxes.delete(sandboxId))
    return found
  }

  const contextFor = async (sandboxId: string, id: string): Promise<KernelContext> => {
    const contexts = await contextsOf(sandboxId)
    const context = contexts.get(id)
    if (context) return context
    const language = kernelLanguages.find((name) => name === id)
    if (!language) throw new Refusal('context_unknown', { context: id })
    const added = addContext(deps, sandboxId, contexts, { id, language })
    const reason = lost.get(sandboxId)?.get(id)
    if (reason !== undefined) added.noteLost(reason)
    lost.get(sandboxId)?.delete(id)
    return added
  }

  return {
    async *run(sandboxId, call, signal) {
      const context = await contextFor(sandboxId, call.context ?? kernelOf(call.language))
      checkCall(call, context)
      yield* callEvents(context, call, signal)
    },
    async list(sandboxId) {
      const contexts = await contextsOf(sandboxId)
      return [...contexts.values()].map((context) => context.describe())
    },
    async create(sandboxId, { language, cwd, rewind, files }): Promise<Context> {
      if (rewind !== undefined && !(Number.isInteger(rewind) && rewind >= 0 && rewind <= rewindMax))
        throw new Refusal('invalid_argument', { field: 'rewind', problem: `must be a whole number up to ${rewindMax}` })
      const contexts = await contextsOf(sandboxId)
      const context = addContext(deps, sandboxId, contexts, {
        id: newId('context'),
        language,
        ...(cwd !== undefined && { cwd }),
        ...(rewind !== undefined && { rewind }),
        ...(files !== undefined && { files }),
      })
      try {
        // A context that exists as a process is found again after a restart of the front.
        await context.start()
      } catch (error) {
        contexts.delete(context.id)
        throw error
      }
      return context.describe()
    },
    async restart(sandboxId, id) {
      await (await contextFor(sandboxId, id)).end()
    },
    async remove(sandboxId, id) {
      const contexts = await contextsOf(sandboxId)
      const context = contexts.get(id)
      contexts.delete(id)
      await context?.end()
      return context !== undefined
    },
    async interrupt(sandboxId, id) {
      return (await contextFor(sandboxId, id)).interrupt()
    },
    async rewind(sandboxId, { context: id = 'python', calls, files }) {
      const context = await contextFor(sandboxId, id)
      return context.rewind(calls, files ?? false)
    },
    forget(sandboxId) {
      sandboxes.delete(sandboxId)
      lost.delete(sandboxId)
    },
    lose(sandboxId, reason, startedAtMs) {
      const known = sandboxes.get(sandboxId)
      void known?.then(
        (contexts) => {
          for (const context of contexts.values()) context.lose(reason)
        },
        () => undefined,
      )
      if (!known && startedAtMs < openedAtMs)
        lost.set(sandboxId, new Map(kernelLanguages.map((language) => [language, reason])))
    },
  }
}

async function* callEvents(
  context: KernelContext,
  call: Call,
  signal: AbortSignal,
): AsyncGenerator<CallEvent, void, undefined> {
  // Each event waits until the one before it was read.
  const events = new AsyncQueue<CallEvent>({ capacity: 4 })
  const left = new AbortController()
  const running = context.run(call, events, AbortSignal.any([signal, left.signal]))
  running.then(
    () => events.close(),
    (error: unknown) => events.fail(error as Error),
  )
  try {
    yield* events
  } finally {
    left.abort()
  }
}

function checkCall(call: Call, context: KernelContext): void {
  if (context.language !== kernelOf(call.language))
    throw new Refusal('context_language', { context: context.id, language: context.language })
  // Python and Node report it themselves; a shell cannot receive it.
  if (context.language === 'bash' && call.code.includes('\0'))
    throw new Refusal('invalid_argument', { field: 'code', problem: 'contains a NUL character' })
}

function addContext(deps: KernelDeps, sandboxId: string, contexts: Contexts, name: NewContext): KernelContext {
  if (contexts.size >= contextsMax) throw new Refusal('contexts_full', { limit: contextsMax })
  const context = new KernelContext(deps, sandboxId, name)
  contexts.set(name.id, context)
  return context
}

/** Finds the kernels that an earlier front has started. */
async function findContexts(deps: KernelDeps, sandboxId: string): Promise<Contexts> {
  const contexts: Contexts = new Map()
  const statuses = await deps.processes.list(sandboxId)
  for (const status of statuses.toSorted((one, other) => one.processId - other.processId)) {
    const name = contextOf(status, deps.dir)
    if (!name || (!contexts.has(name.id) && contexts.size >= contextsMax)) continue
    const context = contexts.get(name.id) ?? new KernelContext(deps, sandboxId, name)
    contexts.set(name.id, context)
    if (status.ending) context.noteLost(causeOf(status.ending))
    else context.adopt(status.processId)
  }
  return contexts
}
