import { Counter, Gauge, type Registry } from 'prom-client'
import type { RefusalCode } from '../base/errors.ts'

/** Figures of previews: published ports of sandboxes. */
export class PreviewMetrics {
  readonly #requests: Counter<'outcome'>
  readonly #bytes: Counter<'direction'>
  readonly #open: Gauge

  constructor(registry: Registry) {
    const registers = [registry]
    this.#requests = new Counter({
      name: 'glovebox_preview_requests_total',
      help: 'Requests for previews: relayed, or refused and why. One whose program does not answer is preview_failed as well.',
      labelNames: ['outcome'],
      registers,
    })
    this.#bytes = new Counter({
      name: 'glovebox_preview_bytes_total',
      help: 'Bytes to and from the programs behind previews.',
      labelNames: ['direction'],
      registers,
    })
    this.#open = new Gauge({
      name: 'glovebox_preview_connections',
      help: 'Open connections to programs behind previews.',
      registers,
    })
  }

  /** Counts a request. */
  request(outcome: 'relayed' | RefusalCode): void {
    this.#requests.inc({ outcome })
  }

  bytes(direction: 'sent' | 'received', count: number): void {
    this.#bytes.inc({ direction }, count)
  }

  open(connections: number): void {
    this.#open.set(connections)
  }
}
