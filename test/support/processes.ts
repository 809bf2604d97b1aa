import { readdirSync, readFileSync } from 'node:fs'

/** The processes on this host that have this word on their command line, except zombies. */
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

/** Kills those, each by its id, until none is left: some create others meanwhile. */
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

/** Identifies a process permanently: pids are reused, on a busy machine within seconds. */
export interface Known {
  pid: number
  /** In clock ticks since the start of the host; absent when the process was gone already. */
  started: string | undefined
}

export const know = (pid: number): Known => ({ pid, started: statOf(pid)?.started })

/** Whether it is alive: a zombie, which only waits to be reaped, is not. */
export function isAlive({ pid, started }: Known): boolean {
  const now = statOf(pid)
  return now !== undefined && now.started === started && !['Z', 'X'].includes(now.state)
}

function statOf(pid: number): { state: string; started: string } | undefined {
  try {
    // https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html: after the name, which may contain any character, is the third.
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ')
    return { state: fields[0] ?? '', started: fields[19] ?? '' }
  } catch {
    return undefined
  }
}
