import { readdirSync, readFileSync } from 'node:fs'

/** The processes of this machine that have this word on their command line; not those that are only waited for. */
export function processesWith(word: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => commandLine(pid).split('\0').includes(word))
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return '' // ended meanwhile
  }
}

/** Ends those, each by its id, until there are no more: some make others meanwhile. */
export function endProcesses(word: string): void {
  for (let left = processesWith(word); left.length > 0; left = processesWith(word)) {
    for (const pid of left) {
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        // ended meanwhile
      }
    }
  }
}

/** Whether it can do anything any more: a zombie, which only waits to be counted, can't. */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'latin1'))
  } catch {
    return false
  }
}
