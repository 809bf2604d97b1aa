import type { Duplex } from 'node:stream'
import { Refusal } from '../../../base/errors.ts'
import type { PreviewMetrics } from '../../../observe/preview-metrics.ts'
import { MeteredConnection } from './metered.ts'
import { noPreviewLimits, type PreviewLimits, PreviewTraffic } from './traffic.ts'

/** Open connections to previews. One page needs a dozen, a busy service some hundred. */
const maxima = { sandbox: 1_024, key: 2_048, organization: 4_096 } as const

/** Who is charged for a connection. */
export interface ConnectionOwners {
  portId: string
  sandboxId: string
  /** The key that published the port. */
  keyId: string
  orgId: string
}

/** By what a visitor was admitted: an access for all, the own key, or a signed link, which ends with the key that gave it. */
export type Admission =
  | { kind: 'public' }
  | { kind: 'key'; keyId: string }
  | { kind: 'grant'; keyId: string; grant: string }

/** The open connections to published ports, bounded and by port. */
export class PreviewConnections {
  readonly #byPort = new Map<string, Map<Duplex, Admission>>()
  readonly #counts = new Map<string, number>()
  readonly #traffic: PreviewTraffic
  readonly #metrics: Pick<PreviewMetrics, 'bytes'>

  constructor(metrics: Pick<PreviewMetrics, 'bytes'>, limits: PreviewLimits = noPreviewLimits) {
    this.#metrics = metrics
    this.#traffic = new PreviewTraffic(limits)
  }

  /** Ports with open connections. */
  get ports(): string[] {
    return [...this.#byPort.keys()]
  }

  get size(): number {
    let size = 0
    for (const connections of this.#byPort.values()) size += connections.size
    return size
  }

  /**
   * Opens a connection and keeps it until it closes.
   * @param closed called once, when it has closed or could not be opened.
   * @throws Refusal previews_full, preview_traffic, and what `open` throws.
   */
  async open(
    owners: ConnectionOwners,
    admission: Admission,
    open: () => Promise<Duplex>,
    closed: () => void,
  ): Promise<Duplex> {
    this.#traffic.requireRoom(owners)
    const leave = this.#enter(owners, admission)
    const end = () => {
      leave()
      closed()
    }
    let connection: Duplex
    try {
      connection = new MeteredConnection(await open(), (bytes, direction) => {
        this.#metrics.bytes(direction, bytes)
        return this.#traffic.count(owners, bytes, direction)
      })
    } catch (error) {
      end()
      throw error
    }
    const { portId } = owners
    const known = this.#byPort.get(portId) ?? new Map<Duplex, Admission>()
    this.#byPort.set(portId, known.set(connection, admission))
    connection.on('error', () => undefined)
    connection.once('close', () => {
      known.delete(connection)
      if (known.size === 0 && this.#byPort.get(portId) === known) this.#byPort.delete(portId)
      end()
    })
    return connection
  }

  /** How the visitors of a port were admitted, each once. */
  admissionsTo(portId: string): Admission[] {
    const all = [...(this.#byPort.get(portId)?.values() ?? [])]
    return [...new Map(all.map((admission) => [textOf(admission), admission])).values()]
  }

  /**
   * Ends the connections to a port, with an error, so that what waits for a visitor is dropped.
   * @param admission only of visitors who were admitted so.
   */
  end(portId: string, admission?: Admission): void {
    for (const [connection, admitted] of this.#byPort.get(portId) ?? [])
      if (admission === undefined || textOf(admitted) === textOf(admission))
        connection.destroy(new Error('the visitor is no longer admitted'))
  }

  endAll(): void {
    for (const portId of this.ports) this.end(portId)
  }

  #enter({ sandboxId, keyId, orgId }: ConnectionOwners, admission: Admission): () => void {
    const owners: [keyof typeof maxima, string][] = [
      ['sandbox', sandboxId],
      ['key', keyId],
      ['organization', orgId],
    ]
    if (admission.kind !== 'public') owners.push(['key', `visits of ${admission.keyId}`])
    for (const [owner, id] of owners)
      if ((this.#counts.get(id) ?? 0) >= maxima[owner])
        throw new Refusal('previews_full', { owner, max: maxima[owner], retryAfterSeconds: 1 })
    for (const [, id] of owners) this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1)
    return () => {
      for (const [, id] of owners) {
        const left = (this.#counts.get(id) ?? 1) - 1
        if (left > 0) this.#counts.set(id, left)
        else this.#counts.delete(id)
      }
    }
  }
}

const textOf = (admission: Admission): string => JSON.stringify(admission)
