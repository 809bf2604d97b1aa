import { BackgroundJob } from '../../base/background-job.ts'
import { monotonicMs } from '../../base/clock.ts'
import { Refusal } from '../../base/errors.ts'
import type { Caller } from '../caller.ts'

/** Limits for the open requests. */
export interface RequestLimits {
  /** Open requests of one key, streams included. */
  perKey: number
  /** Open requests of one organization, streams included. */
  perOrg: number
  /** Concurrent file transfers of one key. */
  transfersPerKey: number
  /** Memory for request bodies and unread responses of all organizations. */
  bufferBytes: number
}

/** The key or admin token that a request belongs to. */
export interface RequestOwner {
  orgId: string
  keyId: string
}

/** Checks whether a caller may keep its request open. Rejects with a refusal otherwise. */
export type RightCheck = (caller: Caller) => Promise<unknown>

/** Fraction of the memory that one organization can use. */
const orgShare = 1 / 4
/** Interval of the checks. With the grace period, open requests of a revoked key end within a second. */
const checkEveryMs = 250
/** Grace period, in which the runs of a revoked key are cancelled, so that requests that wait for them return the ending. */
const graceMs = 500
const retryAfterSeconds = 1

interface Usage {
  requests: number
  bytes: number
}

/** A request in progress, or an open stream. */
export class OpenRequest {
  readonly owner: RequestOwner
  readonly sinceMs = monotonicMs()
  /** Size of the part of the response that the client has not read. */
  unreadBytes = 0
  /** Size of the received body. */
  bodyBytes = 0
  readonly checks: RightCheck[] = []
  readonly #all: OpenRequests
  readonly #end: (refusal: Refusal) => void
  /** Monotonic time at which a check first found the request to be no longer permitted. */
  #deniedSinceMs: number | undefined

  constructor(all: OpenRequests, owner: RequestOwner, end: (refusal: Refusal) => void) {
    this.#all = all
    this.owner = owner
    this.#end = end
  }

  /** Reserves memory for the body. @throws Refusal `buffers_full`; in this case nothing is reserved. */
  holdBody(bytes: number): void {
    this.#all.holdBody(this, bytes)
  }

  /** Sets the size of the unread response. At the limit, the request with the largest unread response is ended. */
  holdUnread(bytes: number): void {
    this.#all.holdUnread(this, bytes)
  }

  /** Adds a check that must succeed as long as the request is open. */
  require(check: RightCheck): void {
    this.checks.push(check)
  }

  /** Ends the request. @param afterMs grace period; 0 ends it immediately. */
  end(refusal: Refusal, afterMs = 0): void {
    this.#deniedSinceMs ??= monotonicMs()
    if (monotonicMs() - this.#deniedSinceMs >= afterMs) this.#end(refusal)
  }

  /** Unregisters the request. Can be called twice. */
  close(): void {
    this.#all.close(this)
  }
}

/**
 * Manages the open requests of keys: requests in progress, waits, streams, uploads and downloads. Limits their number per
 * key and organization and their memory per organization and in total. Ends them when their key is revoked, expires or
 * loses the right.
 */
export class OpenRequests {
  readonly #limits: RequestLimits
  readonly #callerOf: (keyId: string) => Promise<Caller>
  readonly #open = new Map<string, Set<OpenRequest>>()
  readonly #orgs = new Map<string, Usage>()
  readonly job: BackgroundJob
  #bytes = 0
  #requests = 0

  /** @param callerOf rejects with a refusal for a key that is no longer valid. */
  constructor(limits: RequestLimits, callerOf: (keyId: string) => Promise<Caller>, onFault: (error: unknown) => void) {
    this.#limits = limits
    this.#callerOf = callerOf
    this.job = new BackgroundJob({ everyMs: checkEveryMs, work: () => this.#check(), onFault })
  }

  /** Number and memory of the open requests of all organizations. */
  get usage(): Usage {
    return { requests: this.#requests, bytes: this.#bytes }
  }

  /**
   * Registers a request. The caller must close it when its response has ended.
   * @param end called to end the request early.
   * @throws Refusal `requests_full`.
   */
  open(owner: RequestOwner, end: (refusal: Refusal) => void): OpenRequest {
    const { perKey, perOrg } = this.#limits
    const org = this.#orgs.get(owner.orgId) ?? { requests: 0, bytes: 0 }
    const ofKey = this.#open.get(owner.keyId) ?? new Set()
    const full = (who: string, limit: number) => new Refusal('requests_full', { who, limit, retryAfterSeconds })
    if (ofKey.size >= perKey) throw full('key', perKey)
    if (org.requests >= perOrg) throw full('organization', perOrg)
    const request = new OpenRequest(this, owner, end)
    this.#orgs.set(owner.orgId, org)
    this.#open.set(owner.keyId, ofKey.add(request))
    org.requests += 1
    this.#requests += 1
    return request
  }

  holdBody(request: OpenRequest, bytes: number): void {
    const { bufferBytes } = this.#limits
    const orgBytes = (this.#orgs.get(request.owner.orgId)?.bytes ?? 0) + bytes
    if (orgBytes > bufferBytes * orgShare || this.#bytes + bytes > bufferBytes)
      throw new Refusal('buffers_full', { retryAfterSeconds })
    request.bodyBytes += bytes
    this.#count(request, bytes)
  }

  holdUnread(request: OpenRequest, bytes: number): void {
    if (!this.#open.get(request.owner.keyId)?.has(request)) return
    this.#count(request, bytes - request.unreadBytes)
    request.unreadBytes = bytes
    const { bufferBytes } = this.#limits
    const isOver = () => (this.#orgs.get(request.owner.orgId)?.bytes ?? 0) > bufferBytes * orgShare
    while (bytes > 0 && (isOver() || this.#bytes > bufferBytes)) {
      const largest = this.#largestUnread(isOver() ? request.owner.orgId : undefined)
      if (largest === undefined) return
      this.close(largest)
      largest.end(new Refusal('buffers_full', { retryAfterSeconds }))
    }
  }

  close(request: OpenRequest): void {
    const { keyId, orgId } = request.owner
    const ofKey = this.#open.get(keyId)
    if (!ofKey?.delete(request)) return
    if (ofKey.size === 0) this.#open.delete(keyId)
    this.#count(request, -request.unreadBytes - request.bodyBytes)
    const org = this.#orgs.get(orgId)!
    org.requests -= 1
    this.#requests -= 1
    if (org.requests === 0) this.#orgs.delete(orgId)
  }

  start(): void {
    this.job.start()
  }

  stop(): Promise<void> {
    return this.job.stop()
  }

  #count({ owner }: OpenRequest, bytes: number): void {
    this.#orgs.get(owner.orgId)!.bytes += bytes
    this.#bytes += bytes
  }

  /** Finds the request with the largest unread response. @param orgId the organization to search; all if it is absent. */
  #largestUnread(orgId: string | undefined): OpenRequest | undefined {
    let largest: OpenRequest | undefined
    for (const ofKey of this.#open.values()) {
      for (const request of ofKey) {
        if (orgId !== undefined && request.owner.orgId !== orgId) break
        if (request.unreadBytes > (largest?.unreadBytes ?? 0)) largest = request
      }
    }
    return largest
  }

  /** Checks the rights of open requests. Skips new requests, whose rights have just been checked. */
  async #check(): Promise<void> {
    const beforeMs = monotonicMs() - checkEveryMs
    for (const [keyId, ofKey] of this.#open) {
      const lasting = [...ofKey].filter(({ sinceMs }) => sinceMs < beforeMs)
      if (lasting.length > 0 && keyId.startsWith('key_')) await this.#checkKey(keyId, lasting)
    }
  }

  async #checkKey(keyId: string, requests: readonly OpenRequest[]): Promise<void> {
    const caller = await refusalOr(this.#callerOf(keyId))
    for (const request of requests) {
      if (caller instanceof Refusal) request.end(new Refusal('unauthorized'), graceMs)
      else {
        for (const check of request.checks) {
          const denied = await refusalOr(check(caller))
          if (denied instanceof Refusal) request.end(denied, graceMs)
        }
      }
    }
  }
}

async function refusalOr<T>(promise: Promise<T>): Promise<T | Refusal> {
  try {
    return await promise
  } catch (error) {
    if (error instanceof Refusal) return error
    throw error
  }
}
