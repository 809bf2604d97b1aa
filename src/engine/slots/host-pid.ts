import { readFileSync } from 'node:fs'

/** How many pid namespaces, from ours inwards, a process of a slot is in: the slot's, and a jail's. */
const levels = { slot: 2, jail: 3 } as const

/**
 * The host's number of a process that a guest names by the slot's own number.
 *
 * BOUNDARY: the guest's number only picks among the processes that the kernel says are in its own cgroup, and only one
 * that is in a pid namespace where it belongs: the slot's, or one below it.
 * @throws Error when none of them is it.
 */
export function hostPidOf(slotPid: number, where: keyof typeof levels, candidates: readonly number[]): number {
  const pid = candidates.find((candidate) => {
    const numbers = namespacePids(candidate)
    return numbers.length === levels[where] && numbers[1] === slotPid
  })
  if (pid === undefined) throw new Error(`the host sees no ${where === 'jail' ? 'jailed ' : ''}process ${slotPid}`)
  return pid
}

/** The numbers of one process from our pid namespace inwards. */
function namespacePids(pid: number): number[] {
  let status: string
  try {
    status = readFileSync(`/proc/${pid}/status`, 'latin1')
  } catch {
    return [] // It has ended since it was listed.
  }
  const line = /^NSpid:\s+(.+)$/m.exec(status)
  return line?.[1]?.split(/\s+/).map(Number) ?? []
}
