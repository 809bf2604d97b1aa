import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { WorkspaceHost } from '../../src/core/workspaces/workspaces.ts'
import { agentProcess } from './agent-process.ts'

/** Workspaces as directories below one of the machine, each served by a child process instead of one in a sandbox. */
export const directoryHost = (root: string, env: Readonly<Record<string, string>> = {}): WorkspaceHost => ({
  open: async ({ orgId }, workspace) => {
    const directory = join(root, orgId, encodeURIComponent(workspace))
    await mkdir(directory, { recursive: true })
    return { place: directory, startAgent: async () => agentProcess(directory, env), close: () => {} }
  },
})
