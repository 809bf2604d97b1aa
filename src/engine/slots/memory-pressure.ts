import { readFileSync } from 'node:fs'

/** With less than this share of the machine's memory left, what only makes runs faster is given back. */
const shareKept = 0.08

/** Whether the machine is about to run short of memory, as the kernel estimates it (MemAvailable of proc_meminfo(5)). */
export function memoryIsShort(meminfo = readFileSync('/proc/meminfo', 'latin1')): boolean {
  const kibOf = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(meminfo)?.[1])
  return kibOf('MemAvailable') < kibOf('MemTotal') * shareKept
}
