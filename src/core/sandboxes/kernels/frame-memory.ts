/** A kernel that has sent a part of a frame. */
interface Holder {
  bytes: number
  drop: () => void
}

/**
 * Bounds the memory of the incomplete frames of all kernels of a process. A kernel sends a frame at once; code can send a part
 * of one and keep it, in as many contexts as there are. So the one that has waited longest is dropped.
 */
export class FrameMemory {
  readonly #maxBytes: number
  /** Oldest first. */
  readonly #holders = new Map<object, Holder>()
  #bytes = 0

  constructor(maxBytes = 128 * 1024 * 1024) {
    this.#maxBytes = maxBytes
  }

  get bytes(): number {
    return this.#bytes
  }

  /**
   * Sets what a kernel holds.
   * @param isNew whether it is part of a frame that has just begun.
   * @param drop frees it.
   */
  set(kernel: object, bytes: number, isNew: boolean, drop: () => void): void {
    const before = this.#holders.get(kernel)
    this.#bytes += bytes - (before?.bytes ?? 0)
    if (bytes === 0 || isNew) this.#holders.delete(kernel)
    if (bytes > 0) this.#holders.set(kernel, { bytes, drop })
    while (this.#bytes > this.#maxBytes) {
      const [oldest, holder] = this.#holders.entries().next().value!
      this.#holders.delete(oldest)
      this.#bytes -= holder.bytes
      holder.drop()
    }
  }
}
