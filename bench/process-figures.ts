import { readdirSync, readFileSync } from 'node:fs'

/** The unit of the kernel in /proc/stat and /proc/<pid>/stat: USER_HZ is 100 on every architecture that Node supports. */
const tickMs = 10

/** Time that all processors together have worked since the machine started, including the kernel. */
export function busyCpuMs(): number {
  const [user, nice, system, , , irq, softirq] = readFileSync('/proc/stat', 'utf8')
    .split('\n', 1)[0]!
    .split(/\s+/)
    .slice(1)
    .map(Number)
  return (user! + nice! + system! + irq! + softirq!) * tickMs
}

/** Processor time of one process with all its threads, without its children. */
export function cpuMsOf(pid: number): number {
  const fields = statOf(pid)
  return (Number(fields[11]) + Number(fields[12])) * tickMs
}

export interface Memory {
  /** Shared pages counted proportionally. */
  pssBytes: number
  rssBytes: number
}

export function memoryOf(pid: number): Memory {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  const kibibytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text)?.[1])
  return { pssBytes: kibibytes('Pss') * 1024, rssBytes: kibibytes('Rss') * 1024 }
}

/** Resident memory; cheap enough to be read many times a second. */
export function rssBytesOf(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024
}

export interface Process {
  pid: number
  parent: number
  words: string[]
  cgroups: string
}

/** Every current process. */
export function processes(): Process[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    const pid = Number(name)
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1)
      const cgroups = readFileSync(`/proc/${pid}/cgroup`, 'utf8')
      return [{ pid, parent: Number(statOf(pid)[1]), words, cgroups }]
    } catch {
      return [] // It ended meanwhile.
    }
  })
}

/** Fields from the third on: the second one, the program name, may contain any character. */
function statOf(pid: number): string[] {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return text.slice(text.lastIndexOf(')') + 2).split(' ')
}
