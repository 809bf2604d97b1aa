import type { Duplex } from 'node:stream'
import { BackgroundJob } from '../../../base/background-job.ts'
import { Refusal } from '../../../base/errors.ts'
import type { PortAccess } from '../../../base/sandbox.ts'
import { fault } from '../../../observe/log.ts'
import type { Caller } from '../../caller.ts'
import { notRunning, type SandboxLifecycle } from '../lifecycle.ts'
import type { PreviewAddresses } from './address.ts'
import type { Admission, PreviewConnections } from './connections.ts'

/** A connection outlives the right to it by this time at most, where this process did not withdraw it itself. */
const checkEveryMs = 500

/** A published port, as a visitor uses it. */
export interface Preview {
  portId: string
  port: number
  access: PortAccess
  sandboxId: string
  namespace: string
  orgId: string
  keyId: string
}

/** The visitors' side of published ports. */
export class Previews {
  readonly #lifecycle: SandboxLifecycle
  readonly #callerOf: (keyId: string) => Promise<Caller>
  readonly #addresses: PreviewAddresses
  readonly #connections: PreviewConnections
  readonly #check: BackgroundJob

  /** @param callerOf rejects for a key that is no longer valid. */
  constructor(
    lifecycle: SandboxLifecycle,
    callerOf: (keyId: string) => Promise<Caller>,
    addresses: PreviewAddresses,
    connections: PreviewConnections,
  ) {
    this.#lifecycle = lifecycle
    this.#callerOf = callerOf
    this.#addresses = addresses
    this.#connections = connections
    this.#check = new BackgroundJob({
      everyMs: checkEveryMs,
      work: () => this.endInvalid(),
      onFault: (error) => fault(error, lifecycle.deps.log),
    })
  }

  /** Open connections. */
  get size(): number {
    return this.#connections.size
  }

  start(): void {
    this.#check.start()
  }

  async stop(): Promise<void> {
    await this.#check.stop()
    this.#connections.endAll()
  }

  /** BOUNDARY: finds the port of an address. @throws Refusal preview_invalid. */
  async find(label: string): Promise<Preview> {
    const portId = this.#addresses.portIdOf(label)
    const preview = portId === undefined ? undefined : await this.#valid(portId)
    if (preview === undefined) throw new Refusal('preview_invalid')
    return preview
  }

  /** How a caller is admitted to a preview for keys; `undefined` if it is not. */
  admissionOf({ orgId, namespace }: Preview, caller: Caller): Admission | undefined {
    if (caller.admin !== undefined || caller.orgId !== orgId) return undefined
    return caller.namespaces?.includes(namespace) === false ? undefined : { kind: 'key', keyId: caller.keyId }
  }

  /** How a grant, as part of an address or in a cookie, admits to a preview; `undefined` if it does not. */
  async admissionBy(preview: Preview, grant: string): Promise<Admission | undefined> {
    const keyId = this.#addresses.granterOf(preview.portId, grant, this.#lifecycle.deps.clock.nowMs())
    const caller = keyId === undefined ? undefined : await this.#liveCaller(keyId)
    return caller && this.admissionOf(preview, caller) && { kind: 'grant', grant, keyId: caller.keyId }
  }

  /**
   * Connects to the server behind a preview. The sandbox is in use while the connection is open.
   * @throws Refusal port_closed, sandbox_not_running, previews_full, preview_traffic, preview_invalid, unavailable.
   */
  async connect(preview: Preview, admission: Admission): Promise<Duplex> {
    const row = await this.#lifecycle.deps.store.sandboxes.byId(preview.sandboxId)
    if (row === undefined) throw new Refusal('preview_invalid')
    if (row.state !== 'running') throw notRunning(row)
    const { runner } = this.#lifecycle.deps
    const open = () => this.#lifecycle.asked(row, () => runner.tunnels.open(row.id, preview.port))
    return this.#connections.open(preview, admission, open, this.#lifecycle.activity.begin(row.id))
  }

  async #valid(portId: string): Promise<Preview | undefined> {
    const { store, clock } = this.#lifecycle.deps
    const row = await store.sandboxPorts.byId(portId)
    if (row === undefined || Date.parse(row.expiresAt) <= clock.nowMs()) return undefined
    const sandbox = await store.sandboxes.byId(row.sandboxId)
    if (sandbox === undefined || sandbox.state === 'removing') return undefined
    if ((await this.#liveCaller(row.keyId)) === undefined) return undefined
    const { port, access, keyId, sandboxId } = row
    return { portId, port, access, keyId, sandboxId, orgId: sandbox.orgId, namespace: sandbox.namespace }
  }

  async #liveCaller(keyId: string): Promise<Caller | undefined> {
    try {
      return await this.#callerOf(keyId)
    } catch (error) {
      if (error instanceof Refusal) return undefined
      throw error
    }
  }

  async #isAdmitted(preview: Preview, admission: Admission): Promise<boolean> {
    switch (admission.kind) {
      case 'public':
        return preview.access === 'public'
      case 'key': {
        const caller = await this.#liveCaller(admission.keyId)
        return caller !== undefined && this.admissionOf(preview, caller) !== undefined
      }
      case 'grant':
        return (await this.admissionBy(preview, admission.grant)) !== undefined
    }
  }

  /** Ends the connections to ports that are no longer published, and those of visitors who are no longer admitted. */
  async endInvalid(): Promise<void> {
    for (const portId of this.#connections.ports) {
      const preview = await this.#valid(portId)
      if (preview === undefined) this.#connections.end(portId)
      else
        for (const admission of this.#connections.admissionsTo(portId))
          if (!(await this.#isAdmitted(preview, admission))) this.#connections.end(portId, admission)
    }
  }
}
