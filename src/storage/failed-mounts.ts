import { readFile } from 'node:fs/promises'

/**
 * Lists the mount points below a directory whose filesystem has stopped accepting writes after an error. The kernel
 * reports this in the options of the superblock: https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
 * @param directory absolute, without spaces.
 */
export async function failedMounts(directory: string): Promise<Set<string>> {
  const failed = new Set<string>()
  for (const line of (await readFile('/proc/self/mountinfo', 'latin1')).split('\n')) {
    const [head = '', tail = ''] = line.split(' - ')
    const path = head.split(' ')[4] ?? ''
    const options = tail.split(' ')[2]?.split(',') ?? []
    if (!path.startsWith(`${directory}/`)) continue
    if (options.includes('ro') || options.includes('emergency_ro') || options.includes('shutdown')) failed.add(path)
  }
  return failed
}
