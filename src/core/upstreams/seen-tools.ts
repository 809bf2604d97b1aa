import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { timestamp } from '../../base/clock.ts'
import { toolText } from './listing.ts'
import type { UpstreamTarget } from './upstreams.ts'

/** Maximum number of upstreams, by credential, whose changed tools are known. */
const upstreamsMax = 1_000
/** Maximum number of changed tools of one upstream; an upstream could list new ones without end. */
const toolsMax = 2_000
/** Tools with longer names are not offered once a listing was approved. */
const nameMax = 256

/** What each tool says, as a digest, by name. */
export type ApprovedTools = ReadonlyMap<string, string>

type Compared = Pick<UpstreamTarget, 'id' | 'credentialOf' | 'approved' | 'listedAt'>

interface Seen {
  digest: string
  /** ISO 8601. */
  at: string
}

/** Returns the digests of tools. */
export const approvedOf = (tools: readonly object[]): ApprovedTools =>
  new Map(tools.map((tool) => [String((tool as { name?: unknown }).name), digestOf(tool)]))

/**
 * The tools that upstreams list to clients otherwise than they were approved. They are suspended at once, until the
 * upstream lists them as approved, they are approved, or its tools are read again.
 */
export class SeenTools {
  /** By upstream and credential, since a server can list other tools to another user. */
  readonly #changed = new LRUCache<string, Map<string, Seen>>({ max: upstreamsMax })

  /**
   * Compares tools that an upstream lists with the approved ones.
   * @param tools as they were received.
   * @returns the names of those that are new or differ. Empty if none were approved yet.
   */
  compare(target: Compared, tools: readonly unknown[]): Set<string> {
    const { approved } = target
    const differing = new Set<string>()
    if (approved === null) return differing
    const place = placeOf(target)
    const changed = this.#changed.get(place) ?? new Map<string, Seen>()
    for (const tool of tools) {
      const { name } = (tool ?? {}) as { name?: unknown }
      if (typeof name !== 'string') continue
      const digest = digestOf(tool as object)
      changed.delete(name)
      if (approved.get(name) === digest) continue
      differing.add(name)
      if (name.length <= nameMax) changed.set(name, { digest, at: timestamp() })
    }
    for (const name of changed.keys()) {
      if (changed.size <= toolsMax) break
      changed.delete(name)
    }
    if (changed.size > 0) this.#changed.set(place, changed)
    else this.#changed.delete(place)
    return differing
  }

  /** Returns the names of suspended tools: those of the latest reading, and those that differed since. */
  suspended(target: Compared & Pick<UpstreamTarget, 'suspended'>): ReadonlySet<string> {
    const changed = this.#changed.get(placeOf(target))
    if (changed === undefined) return target.suspended
    const { approved, listedAt, credentialOf } = target
    // Tools are read with the credential of the organization.
    const isCurrent = ({ at }: Seen) => credentialOf !== '' || listedAt === null || at > listedAt
    const differing = [...changed].filter(([name, seen]) => approved?.get(name) !== seen.digest && isCurrent(seen))
    return new Set([...target.suspended, ...differing.map(([name]) => name)])
  }
}

const placeOf = ({ id, credentialOf }: Compared): string => `${id} ${credentialOf}`

const digestOf = (tool: object): string => hash('sha256', toolText(tool), 'base64')
