import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { median } from './figures.ts'

const moves = 15
/** Longer than the kernel stays ready for another move. */
const pauseMs = 30

/**
 * Measures the time to move a process into another cgroup when none was moved just before; each run contains such a
 * move. Without `favordynmods` the kernel waits for an RCU grace period, milliseconds in which nothing is computed:
 * https://docs.kernel.org/admin-guide/cgroup-v2.html#mounting
 *
 * @returns milliseconds, median.
 */
export async function measureCgroupMove(): Promise<number> {
  const memory = '/sys/fs/cgroup/memory'
  const own = join(existsSync(memory) ? memory : '/sys/fs/cgroup', 'glovebox', `bench-${process.pid}-move`)
  const leaves = [join(own, 'a'), join(own, 'b')]
  for (const leaf of leaves) mkdirSync(leaf, { recursive: true })
  const moved = spawn('sleep', ['60'], { stdio: 'ignore' })
  const ended = once(moved, 'exit')
  const tookMs: number[] = []
  try {
    for (let move = 0; move < moves; move++) {
      await sleep(pauseMs)
      const startedMs = performance.now()
      writeFileSync(join(leaves[move % 2]!, 'cgroup.procs'), String(moved.pid))
      tookMs.push(performance.now() - startedMs)
    }
  } finally {
    moved.kill('SIGKILL')
    await ended
    for (const dir of [...leaves, own]) rmdirSync(dir)
  }
  return median(tookMs)
}
