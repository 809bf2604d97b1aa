/** How the processes start that read what others send, and therefore have no privileges. */
import { join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Instance } from '../base/instance.ts'
import type { Config } from '../config.ts'
import { toSharedLimits } from '../network-settings.ts'
import { mainFile } from './main-file.ts'

export const programRoot = resolve(fileURLToPath(new URL('../..', import.meta.url)))

/**
 * What unprivileged processes need to read: the program with everything that it imports. Of a package that npm installed
 * this is the outermost `node_modules`, since the packages beside it are a part of it.
 */
const installed = programRoot.split('/node_modules/')
const programTree = installed.length > 1 ? join(installed[0]!, 'node_modules') : programRoot

/** Where that tree is mounted: Node.js looks for packages only in directories of this name. */
export const treeMountPoint = ({ frontProgram }: Instance): string =>
  programTree === programRoot ? frontProgram : join(frontProgram, 'node_modules')

/** Whether unprivileged processes read a file through their mount of the program. */
export const isInProgram = (path: string): boolean => !relative(programTree, path).startsWith('..')

/** The front: serves HTTP. */
export function frontCommand({ frontUid, frontGid }: Config, instance: Instance): string[] {
  return unprivileged(frontUid, frontGid, instance, ['front'])
}

/** The broker: connects runs to the network. Its user is another one than that of the front, which holds the database. */
export function brokerCommand(config: Config, instance: Instance): string[] {
  const { egressUid, egressCaFile, logLevel, logFormat } = config
  return unprivileged(egressUid, egressUid, instance, [
    ...[
      'broker',
      '--log-level',
      logLevel,
      '--log-format',
      logFormat,
      '--limits',
      JSON.stringify(toSharedLimits(config)),
    ],
    ...(egressCaFile === '' ? [] : ['--ca-file', egressCaFile]),
  ])
}

/** The puller: reads from registries. */
export function pullerCommand(uid: number, instance: Instance): string[] {
  return unprivileged(uid, uid, instance, ['image-puller'])
}

/**
 * No code of the process ever runs as root: the program is bind-mounted read-only, in a mount namespace of its own, where
 * its user can read it, and only then Node.js starts, without any capability. It leaves no core file, which would contain
 * secrets.
 */
function unprivileged(uid: number, gid: number, instance: Instance, command: readonly string[]): string[] {
  const script =
    'ulimit -c 0 && mount --rbind "$1" "$2" && mount -o remount,bind,ro,nosuid,nodev "$2" && cd "$2" && shift 2 && exec setpriv "$@"'
  const mountPoint = treeMountPoint(instance)
  const mounted = (path: string) => (isInProgram(path) ? join(mountPoint, relative(programTree, path)) : path)
  return [
    ...['unshare', '--mount', '--propagation', 'slave', '--'],
    ...['sh', '-c', script, 'sh', programTree, mountPoint],
    ...[`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups'],
    ...['--no-new-privs', '--bounding-set=-all', '--inh-caps=-all', '--'],
    ...[mounted(process.execPath), mounted(join(programRoot, mainFile)), ...command],
  ]
}
