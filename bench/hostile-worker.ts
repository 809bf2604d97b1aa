/**
 * The process of a hostile key: one attack, until a message says stop. It delays the good key only through the server: it
 * stands for a machine of its own, so it only gets the processor time that the server leaves.
 */
import { writeFileSync } from 'node:fs'
import { setPriority } from 'node:os'
import type { HostileWork, Tally } from './hostile-attack.ts'
import { attacks } from './hostile-attacks.ts'

setPriority(19)
try {
  // Where the kernel groups processes by session, a priority is only compared within a session: sched(7).
  writeFileSync('/proc/self/autogroup', '19')
} catch {
  // This kernel does not.
}
const work = JSON.parse(process.argv[2] ?? '') as HostileWork
const run = attacks[work.attack]
if (run === undefined) throw new Error(`there is no attack named ${work.attack}`)
const tally: Tally = { attempts: 0, refused: 0 }
const stop = new AbortController()
process.once('message', () => stop.abort())
process.once('disconnect', () => process.exit(1))
await run(work, tally, stop.signal)
process.send?.(tally, () => process.exit(0))
