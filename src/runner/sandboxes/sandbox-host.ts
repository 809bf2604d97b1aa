import type { Egress } from '../../egress/client.ts'
import type { SlotPool } from '../../engine/slots/pool.ts'
import type { OpenStorage } from '../storage/storage.ts'
import type { HostWorkspaces } from './host-workspaces.ts'

/** The parts of an image, which become layers, and its variables, until `release`. */
export interface SandboxImage {
  parts: readonly { name: string; dir: string }[]
  env: Record<string, string>
  release(): void
}

/** What sandboxes are made from on this runner. */
export interface SandboxHost {
  pool: SlotPool
  storage: OpenStorage
  /** Directories of the host that sandboxes can have. */
  workspaces: HostWorkspaces
  /** Opens the network of sandboxes that have one; absent if none has. */
  egress: Egress | undefined
  /** Idle time after which a sandbox gives back memory, in milliseconds. */
  idleMemoryMs: number
  failed(error: unknown): void
  /** @throws Refusal image_unknown. */
  imageOf(name: string | undefined): Promise<SandboxImage>
}
