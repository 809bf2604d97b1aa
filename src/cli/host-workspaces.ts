import { realpathSync, statSync } from 'node:fs'
import { resolve, sep } from 'node:path'
import { StartRefused } from '../base/errors.ts'
import { formatWorkspace, parseWorkspace } from '../base/host-workspace.ts'
import type { Config } from '../config.ts'

/** Directories that belong to the system: their content is not a project. */
const systemDirectories = ['/', '/bin', '/boot', '/dev', '/etc', '/lib', '/proc', '/run', '/sbin', '/sys', '/usr']

/**
 * Returns the configuration with absolute directories without links, so that children, which have other working directories,
 * find the same ones.
 * @throws StartRefused for a missing directory, one of the system, and one that contains or is inside the home of the server.
 */
export function withHostWorkspaces(config: Config, stateDir: string): Config {
  const own = [realpathSync(config.home), stateDir]
  return { ...config, workspace: config.workspace.map((entry) => toResolved(entry, own)) }
}

function toResolved(entry: string, own: readonly string[]): string {
  const workspace = parseWorkspace(entry)
  const directory = realDirectory(workspace.directory)
  const isSystem = systemDirectories.some(
    (system) => directory === system || (system !== '/' && isBelow(directory, system)),
  )
  if (isSystem || own.some((path) => isBelow(path, directory) || isBelow(directory, path))) {
    throw new StartRefused(
      `${directory} cannot be a workspace: it belongs to the system or to this server.`,
      'Name the directory of a project with --workspace.',
    )
  }
  return formatWorkspace({ ...workspace, directory })
}

function realDirectory(given: string): string {
  try {
    const directory = realpathSync(resolve(given))
    if (statSync(directory).isDirectory()) return directory
  } catch (error) {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException
    throw new StartRefused(
      `The workspace ${given} cannot be opened: ${code}.`,
      'Create the directory, or correct --workspace.',
    )
  }
  throw new StartRefused(`The workspace ${given} is not a directory.`, 'Name a directory with --workspace.')
}

const isBelow = (path: string, directory: string): boolean =>
  path === directory || path.startsWith(directory === sep ? sep : `${directory}${sep}`)
