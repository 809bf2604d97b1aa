import { timestamp } from '../../../base/clock.ts'
import { Refusal } from '../../../base/errors.ts'
import type { PortAccess } from '../../../base/sandbox.ts'
import type { SandboxPortRow } from '../../../store/sandbox-ports.ts'
import type { Caller } from '../../caller.ts'
import type { SandboxLifecycle } from '../lifecycle.ts'
import type { SandboxRef } from '../names.ts'
import { auditedChange, findSandbox } from '../sandbox-rows.ts'
import { newPortId, type PreviewAddress, type PreviewAddresses } from './address.ts'
import type { PreviewConnections } from './connections.ts'

/** The capability that each operation requires. */
export const sandboxPortNeeds = {
  publish: 'sandboxes.write',
  withdraw: 'sandboxes.write',
  list: 'sandboxes.read',
} as const

/** Published ports of one sandbox: more than any program serves, few enough to list. */
const portsMax = 32
const lifeDefaultSeconds = 24 * 3_600
/** An address that was forgotten ends within a month. */
export const portLifeMaxSeconds = 31 * 24 * 3_600
/** A browser with a signed link is admitted for a working day at most. */
const grantMaxMs = 12 * 3_600_000
/** In a sandbox with a network, these lead to the broker. */
const reservedPorts: readonly number[] = [53, 3128]

export interface PublishRequest {
  port: number
  access?: PortAccess | undefined
  /** Seconds from now. */
  expiresIn?: number | undefined
}

export interface PublishedPort extends PreviewAddress {
  access: PortAccess
  createdAt: string
  expiresAt: string
}

/** Ports of sandboxes that are reached through the server. */
export class SandboxPorts {
  readonly #lifecycle: SandboxLifecycle
  readonly #addresses: PreviewAddresses
  readonly #connections: PreviewConnections

  constructor(lifecycle: SandboxLifecycle, addresses: PreviewAddresses, connections: PreviewConnections) {
    this.#lifecycle = lifecycle
    this.#addresses = addresses
    this.#connections = connections
  }

  /**
   * Publishes a port. One that is published already keeps its address and gets the new access and expiry.
   * @throws Refusal sandbox_unknown, ports_full, invalid_argument.
   */
  async publish(caller: Caller, ref: SandboxRef, request: PublishRequest): Promise<PublishedPort> {
    const { port, access = 'key', expiresIn = lifeDefaultSeconds } = request
    checkPort(port)
    const { store, clock } = this.#lifecycle.deps
    const sandbox = await findSandbox(store, caller, ref)
    const row: SandboxPortRow = {
      ...{ id: newPortId(), sandboxId: sandbox.id, port, access, keyId: caller.keyId, createdAt: timestamp() },
      expiresAt: new Date(clock.nowMs() + expiresIn * 1_000).toISOString(),
    }
    const act = { actor: caller.keyId, action: 'publish', details: { port, access } } as const
    const published = await auditedChange(store, sandbox, act, async ({ sandboxPorts }) => {
      const known = await sandboxPorts.list(sandbox.id)
      if (known.length >= portsMax && !known.some((one) => one.port === port))
        throw new Refusal('ports_full', { max: portsMax })
      return sandboxPorts.publish(row)
    })
    // Connections of visitors who may not be admitted any more.
    if (access === 'key') this.#connections.end(published.id)
    return this.#toView(published, caller)
  }

  /** Lists the published ports by number. @throws Refusal sandbox_unknown. */
  async list(caller: Caller, ref: SandboxRef): Promise<PublishedPort[]> {
    const { store } = this.#lifecycle.deps
    const rows = await store.sandboxPorts.list((await findSandbox(store, caller, ref)).id)
    return rows.map((row) => this.#toView(row, caller))
  }

  /** Ends an address with its open connections. @throws Refusal sandbox_unknown, port_unpublished. */
  async withdraw(caller: Caller, ref: SandboxRef, port: number): Promise<void> {
    const { store } = this.#lifecycle.deps
    const sandbox = await findSandbox(store, caller, ref)
    const act = { actor: caller.keyId, action: 'withdraw', details: { port } } as const
    const gone = await auditedChange(store, sandbox, act, async ({ sandboxPorts }) => {
      const row = await sandboxPorts.withdraw(sandbox.id, port)
      if (row === undefined) throw new Refusal('port_unpublished', { port })
      return row
    })
    this.#connections.end(gone.id)
  }

  #toView({ id, port, access, createdAt, expiresAt }: SandboxPortRow, { keyId }: Caller): PublishedPort {
    const until = Math.min(Date.parse(expiresAt), this.#lifecycle.deps.clock.nowMs() + grantMaxMs)
    const grant = access === 'key' ? this.#addresses.grantOf(id, keyId, until) : null
    const { domain } = this.#addresses
    return { port, access, createdAt, expiresAt, label: this.#addresses.labelOf(id), grant, domain }
  }
}

function checkPort(port: number): void {
  if (!reservedPorts.includes(port)) return
  throw new Refusal('invalid_argument', { field: 'port', problem: `cannot be ${reservedPorts.join(' or ')}` })
}
