/**
 * What a caller may do, as `noun.action`. Each verb of core names the one that it needs, each tool the ones that it
 * grants to a key that is limited to tools, and each REST operation the one that its handler uses. A new noun adds its
 * own (`workspaces.read`) in the change that adds its first verb: a test fails for a
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
  /** Lists and inspects named sandboxes, and reads their metrics. */
  'sandboxes.read',
  /** Creates, starts, stops, pauses, extends and deletes named sandboxes. */
  'sandboxes.write',
  /** Runs commands and code in named sandboxes, and controls their processes. */
  'sandboxes.execute',
  /** Reads, lists and watches files of named sandboxes, running or stopped. */
  'sandboxes.files.read',
  /** Writes, moves, copies and deletes files of named sandboxes, running or stopped. */
  'sandboxes.files.write',
  /** Reads and searches files of workspaces. */
  'workspaces.read',
  /** Changes files of workspaces and runs programs in them. */
  'workspaces.write',
  /** Applies and drops the changes that workspaces keep for review. */
  'workspaces.review',
  /** Lists upstreams with their tools, and reads how often they were called. */
  'upstreams.read',
  /** Sends messages to upstreams. */
  'upstreams.call',
] as const

export type Capability = (typeof capabilities)[number]
