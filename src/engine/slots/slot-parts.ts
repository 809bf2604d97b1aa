import type { Cleanup } from '../../base/cleanup.ts'
import type { SlotCgroup } from '../cgroups/cgroups.ts'
import type { Processors } from '../cgroups/processors.ts'
import type { LanguageFound } from '../jails/languages.ts'
import type { SlotSockets } from '../jails/socket-memory.ts'
import type { Zygotes } from '../jails/zygotes.ts'
import type { Guest } from './guest.ts'
import type { MountTurns } from './mount-turns.ts'
import type { Container } from './runtime.ts'
import type { SpareInterpreter } from './spare-interpreter.ts'

/** A directory through which storage is mounted into a slot; made by the storage module, ended with the slot. */
export interface SlotDock {
  readonly dir: string
  release(): Promise<void>
}

/** Makes the dock of a slot at a path that does not exist yet. */
export type OpenDock<Dock extends SlotDock = SlotDock> = (dir: string) => Promise<Dock>

/** What a slot consists of. */
export interface Parts {
  id: string
  container: Container
  cgroup: SlotCgroup
  guest: Guest
  residents: ReadonlySet<number>
  hosts: Zygotes
  spare: SpareInterpreter
  env: Readonly<Record<string, string>>
  dock: SlotDock | undefined
  languages: readonly LanguageFound[]
  processors: Processors | undefined
  mountTurns: MountTurns
  sockets: SlotSockets
  storageIops: number
  undo: Cleanup
  startedMs: number
}
