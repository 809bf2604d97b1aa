import { Refusal } from '../../base/errors.ts'
import { InTurn } from '../../base/in-turn.ts'
import type { SandboxSpec } from '../../base/sandbox.ts'
import { diskBytesFor } from '../../storage/disks.ts'
import { inPlace } from '../../storage/dock.ts'
import type { FilesystemId } from '../../storage/filesystem-id.ts'
import type { Mounted } from '../../storage/filesystems.ts'
import type { MountCache } from '../../storage/mount-cache.ts'
import type { RewoundFiles } from '../protocol/sandboxes.ts'
import { dockFor } from '../runs/slot-mounts.ts'
import type { BuiltinRun } from './builtin-run.ts'
import { type SandboxParts, stateEntry } from './sandbox-parts.ts'

/** Of what a restoration answers. */
const answerBytesMax = 64 * 1024

/** All states together take as much as so many full disks: the present state, and an earlier one at least. */
const disksMax = 2

/** The disk as it was after a call, or why it was not kept. */
type State = { id: FilesystemId; bytes: number } | { reason: string }

/** What states need of their sandbox. */
export interface StatesHost {
  parts(): SandboxParts
  /** Suspends all processes during `work`. */
  whileFrozen<T>(work: () => Promise<T>): Promise<T>
  restore(argv: readonly string[]): BuiltinRun
}

/**
 * Earlier states of the disk of one sandbox, by context: copies of its filesystem, which share blocks where the disk of the
 * machine can. They end with the sandbox.
 */
export class DiskStates {
  readonly #spec: SandboxSpec
  readonly #mounts: MountCache
  readonly #host: StatesHost
  readonly #turns = new InTurn()
  /** Oldest first; the last one is the present state of its context. */
  readonly #states = new Map<string, State[]>()
  #number = 0

  constructor(spec: SandboxSpec, mounts: MountCache, host: StatesHost) {
    this.#spec = spec
    this.#mounts = mounts
    this.#host = host
  }

  /** Keeps the present state; see `SandboxStates.keep`. */
  keep(context: string, most: number, undone: number): Promise<void> {
    return this.#turns.run('', async () => {
      const states = this.#states.get(context) ?? []
      this.#states.delete(context) // The context that was used last is the last one.
      this.#states.set(context, states)
      if (undone > 0) for (const old of states.splice(Math.max(0, states.length - 1 - undone))) await this.#drop(old)
      states.push(await this.#copy().catch((error: unknown) => ({ reason: reasonOf(error) })))
      for (const old of states.splice(0, Math.max(0, states.length - most - 1))) await this.#drop(old)
      await this.#limitBytes(states.at(-1))
    })
  }

  /** Forgets the states of a context. */
  forget(context: string): Promise<void> {
    return this.#turns.run('', async () => {
      const states = this.#states.get(context) ?? []
      this.#states.delete(context)
      for (const state of states) await this.#drop(state)
    })
  }

  /** Forgets all, when nothing of the sandbox lives any more. */
  async close(): Promise<void> {
    await Promise.all([...this.#states.keys()].map((context) => this.forget(context)))
  }

  /** @throws Refusal rewind_unavailable: the state before these calls was not kept. */
  check(context: string, calls: number): void {
    this.#target(context, calls)
  }

  /** Puts the disk back into the state before the last calls. @throws Refusal rewind_unavailable and others. */
  rewind(context: string, calls: number): Promise<RewoundFiles> {
    return this.#turns.run('', async () => {
      const { states, index, state } = this.#target(context, calls)
      const lease = await this.#mounts.acquire(state.id, undefined)
      let rewound: RewoundFiles
      try {
        rewound = await this.#restore(lease.mounted)
      } finally {
        lease.release()
      }
      for (const later of states.splice(index + 1)) await this.#drop(later)
      return rewound
    })
  }

  #target(context: string, calls: number) {
    const states = this.#states.get(context) ?? []
    const index = states.length - 1 - calls
    const state = states[index]
    const unavailable = (reason: string) => new Refusal('rewind_unavailable', { context, reason })
    if (state === undefined) {
      const kept = Math.max(0, states.length - 1)
      throw unavailable(states.length === 0 ? 'it keeps no files' : `it keeps the files before its last ${kept} calls`)
    }
    if ('reason' in state) throw unavailable(`the files before that call were not kept: ${state.reason}`)
    return { states, index, state }
  }

  async #copy(): Promise<State> {
    this.#number += 1
    const { orgId, sandboxId } = this.#spec
    const id = { area: 'states', org: orgId, name: `${sandboxId}.${this.#number}` } as const
    const { disk } = this.#host.parts()
    await this.#host.whileFrozen(() => this.#mounts.snapshot(disk, id))
    return { id, bytes: (await this.#mounts.allocatedBytes(id)) ?? 0 }
  }

  async #restore(mounted: Mounted): Promise<RewoundFiles> {
    const { slot } = this.#host.parts()
    const dock = await dockFor(slot, [mounted])
    const attached = await slot.mounting(() => dock.attachInPlace(stateEntry, mounted, slot.pid))
    try {
      const run = this.#host.restore([inPlace])
      const text = await textOf(run)
      await run.done
      return parseRewound(text)
    } finally {
      await attached.detach()
    }
  }

  async #limitBytes(latest: State | undefined): Promise<void> {
    const all = () => [...this.#states.values()].flat()
    const bytes = () => all().reduce((sum, state) => sum + ('bytes' in state ? state.bytes : 0), 0)
    while (bytes() > disksMax * diskBytesFor(this.#spec.disk)) {
      const earlier = [...this.#states.values()].flatMap((states) => states.slice(0, -1))
      // Then the latest of contexts that were used before this one.
      const oldest = [...earlier, ...all().filter((state) => state !== latest)].find((state) => 'id' in state)
      if (oldest === undefined) return
      await this.#drop(oldest)
      for (const states of this.#states.values()) {
        const index = states.indexOf(oldest)
        if (index >= 0) states[index] = { reason: 'all states together would take more than two full disks' }
      }
    }
  }

  async #drop(state: State): Promise<void> {
    // One that is still mounted somewhere goes with the next start of the runner.
    if ('id' in state) await this.#mounts.remove(state.id).catch(() => undefined)
  }
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

async function textOf(run: BuiltinRun): Promise<string> {
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of run.output) {
    bytes += piece.length
    if (bytes <= answerBytesMax) pieces.push(piece)
  }
  return Buffer.concat(pieces).toString()
}

/** BOUNDARY: what a sandbox says about its own files. */
function parseRewound(text: string): RewoundFiles {
  const [counts = '', ...problems] = text.split('\n')
  const [restored = 0, removed = 0, failed = 0] = counts.split(' ').map((word) => Math.min(Number(word) || 0, 1e9))
  return { restored, removed, failed, problems: problems.filter((path) => path !== '').slice(0, 5) }
}
