/**
 * What a caller may do, as `noun.action`. Each verb of core names the one that it needs, each tool the ones that it
 * grants to a key that is limited to tools, and each REST operation the one that its handler uses. A new noun adds its
 * own (`sandboxes.use`, `workspaces.read`) in the change that adds its first verb: a test fails for a
 * capability that no verb needs.
 */
export const capabilities = [
  /** Runs code. Includes reading, following and cancelling the runs that the same key started. */
  'execute',
  /** Reads, waits for and follows every run of the organization, and lists them. */
  'executions.read',
  /** Cancels every run of the organization. */
  'executions.cancel',
  /** Lists and reads files of threads and volumes, and creates links that download them. */
  'files.read',
  /** Writes and deletes files of threads and volumes, and creates links that upload them. */
  'files.write',
  /** Lists and inspects threads. */
  'threads.read',
  /** Forks and deletes threads. */
  'threads.write',
  /** Lists the volumes that the profile mounts. */
  'volumes.read',
  /** Lists upstreams with their tools, and reads how often they were called. */
  'upstreams.read',
  /** Sends messages to upstreams. */
  'upstreams.call',
] as const

export type Capability = (typeof capabilities)[number]
