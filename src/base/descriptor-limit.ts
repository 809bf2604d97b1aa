import { readFileSync } from 'node:fs'

/** Returns the number of descriptors that this process may open. */
export function descriptorLimit(): number {
  const found = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))
  return found === null ? Number.POSITIVE_INFINITY : Number(found[1])
}
