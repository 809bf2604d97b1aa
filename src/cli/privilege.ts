import { readFileSync } from 'node:fs'
import { StartRefused } from '../base/errors.ts'

/** Its number: https://github.com/torvalds/linux/blob/master/include/uapi/linux/capability.h */
const capSysAdmin = 21n

/**
 * Requires the privilege to create namespaces and mounts, which all isolation is built on.
 * @param command as the operator typed it.
 * @throws StartRefused when this process lacks it.
 */
export function requirePrivilege(command: string): void {
  if (process.getuid?.() !== 0) {
    throw new StartRefused(`glovebox ${command} must be started by root.`, 'Start it with sudo or as a system service.')
  }
  const held = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'latin1'))?.[1] ?? '0'
  if ((BigInt(`0x${held}`) >> capSysAdmin) % 2n === 1n) return
  throw new StartRefused(
    'This process cannot create namespaces and mounts: it lacks the capability CAP_SYS_ADMIN.',
    'Start it outside a container, or in a privileged one (docker run --privileged).',
  )
}
