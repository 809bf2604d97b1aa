/** Directories of the host that an operator shares as workspaces in development mode. Plain data for all modules. */

/** What agents can do: change files, read them, or make changes that the operator applies or drops. */
export const workspaceModes = ['read-write', 'read-only', 'review'] as const
export type WorkspaceMode = (typeof workspaceModes)[number]

export interface HostWorkspace {
  /** Name of the workspace and of its sandbox. */
  name: string
  directory: string
  mode: WorkspaceMode
}

/** Name of a workspace that was given without one: that of calls that name none. */
const unnamed = 'workspace'
const entryPattern = /^(?:([A-Za-z0-9][A-Za-z0-9_-]{0,62})=)?(.*?)(?::(read-write|read-only|review))?$/s

/** Reads `[NAME=]DIRECTORY[:MODE]`. */
export function parseWorkspace(entry: string): HostWorkspace {
  const [, name = unnamed, directory = '', mode = 'read-write'] = entryPattern.exec(entry) ?? []
  return { name, directory, mode: mode as WorkspaceMode }
}

/** Writes an entry that `parseWorkspace` reads. */
export const formatWorkspace = ({ name, directory, mode }: HostWorkspace): string => `${name}=${directory}:${mode}`

/** Returns what is wrong with a list of entries, or `undefined`. */
export function workspacesProblem(entries: readonly string[]): string | undefined {
  const names = new Set<string>()
  for (const entry of entries) {
    const { name, directory } = parseWorkspace(entry)
    if (directory === '' || directory.includes('\0')) return `"${entry}" names no directory. Write NAME=DIRECTORY:MODE.`
    if (names.has(name)) return `two directories have the name ${name}. Write NAME=DIRECTORY for each.`
    names.add(name)
  }
  return undefined
}

/** The directory in its sandbox where a host directory appears, beside the volumes. */
export const workspacePath = (name: string): string => `/volumes/${name}`

/** A change that a workspace with the mode `review` keeps. */
export interface ReviewedChange {
  /** Relative to the directory. */
  path: string
  change: 'added' | 'modified' | 'deleted'
  kind: 'file' | 'directory' | 'link'
  /** Size of the new file in bytes. */
  sizeBytes: number
  /** The content, in base64, where it was requested and is small enough. Of a link: its target. */
  before?: string
  after?: string
}

export interface Review {
  changes: ReviewedChange[]
  /** Paths that cannot be applied: sockets, devices, FIFOs, and names that are not UTF-8. */
  unsupported: string[]
  /** Whether there are more changes than are listed. */
  isIncomplete: boolean
}
