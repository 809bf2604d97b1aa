import { readFileSync } from 'node:fs'
import { StartRefused } from '../base/errors.ts'

/** Its number: https://github.com/torvalds/linux/blob/master/include/uapi/linux/capability.h */
const capSysAdmin = 21n

/**
 * Namespaces and mounts are what every wall is made of.
 * @param command as the operator typed it.
 * @throws StartRefused where this process may not make them.
 */
export function requirePrivilege(command: string): void {
  if (process.getuid?.() !== 0) {
    throw new StartRefused(
      `glovebox ${command} must be started by root.`,
      'Start it with sudo, or as a system service.',
    )
  }
  const held = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'latin1'))?.[1] ?? '0'
  if ((BigInt(`0x${held}`) >> capSysAdmin) % 2n === 1n) return
  throw new StartRefused(
    'This root may make neither namespaces nor mounts: it lacks the capability CAP_SYS_ADMIN.',
    'Start it outside of a container, or in one that is given it (docker run --privileged).',
  )
}
