import { join } from 'node:path'
import { readControl, readKeyed, writeControlIfThere, writeControlUntil } from './cgroup-files.ts'

/** How a kernel suspends the processes of a cgroup. */
interface FreezerFile {
  dir: string
  file: string
  value(isFrozen: boolean): string
  isDone(isFrozen: boolean): boolean
}

/** Suspends one cgroup for two independent reasons. It continues when neither applies. */
export class Freezer {
  readonly #file: FreezerFile | undefined
  #frozen = false
  #held = false
  #closed = false

  /** @param file absent where the kernel has no freezer controller. */
  constructor(file: FreezerFile | undefined) {
    this.#file = file
  }

  /** Resolves when the kernel has done it. @throws Error after 2 s, or without a controller. */
  async freeze(isFrozen: boolean): Promise<void> {
    if (this.#file === undefined) throw new Error('there is no freezer controller')
    const { dir, file, value, isDone } = this.#file
    this.#frozen = isFrozen
    if (this.#held && !isFrozen) return // It continues when this ends.
    await writeControlUntil(dir, file, value(isFrozen), () => isDone(isFrozen))
  }

  /** Does not wait. Does nothing while it is closed, or without a controller. */
  hold(isHeld: boolean): void {
    if (isHeld === this.#held || (isHeld && this.#closed)) return
    this.#held = isHeld
    if (!this.#frozen) this.#write(isHeld)
  }

  /** Ends a hold and permits no other one until `open`: a run that is being killed must not be suspended. */
  close(): void {
    this.hold(false)
    this.#closed = true
  }

  open(): void {
    this.#closed = false
  }

  /** Lets the processes continue whatever the reasons, so that they receive a signal. */
  thaw(): void {
    if (this.#frozen || this.#held) this.#write(false)
  }

  #write(isFrozen: boolean): void {
    if (this.#file !== undefined) writeControlIfThere(this.#file.dir, this.#file.file, this.#file.value(isFrozen))
  }
}

/** In this hierarchy all processes of a slot are in `base`, so that the guest is suspended as well. */
export function freezerV1(point: string | undefined, base: string): Freezer {
  if (point === undefined) return new Freezer(undefined)
  const dir = join(point, base)
  const value = (isFrozen: boolean) => (isFrozen ? 'FROZEN' : 'THAWED')
  const isDone = (isFrozen: boolean) => readControl(dir, 'freezer.state').trim() === value(isFrozen)
  return new Freezer({ dir, file: 'freezer.state', value, isDone })
}

export function freezerV2(dir: string): Freezer {
  const value = (isFrozen: boolean) => (isFrozen ? '1' : '0')
  const isDone = (isFrozen: boolean) => readKeyed(dir, 'cgroup.events', 'frozen') === Number(isFrozen)
  return new Freezer({ dir, file: 'cgroup.freeze', value, isDone })
}
