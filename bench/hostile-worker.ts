/**
 * The worker thread of a hostile key: one attack, until a message says stop. It has an event loop of its own, so that it
 * delays the good key only through the server and the processors.
 */
import { parentPort, workerData } from 'node:worker_threads'
import type { HostileWork, Tally } from './hostile-attack.ts'
import { attacks } from './hostile-attacks.ts'

const work = workerData as HostileWork
const run = attacks[work.attack]
if (run === undefined) throw new Error(`there is no attack named ${work.attack}`)
const tally: Tally = { attempts: 0, refused: 0 }
const stop = new AbortController()
parentPort?.once('message', () => stop.abort())
await run(work, tally, stop.signal)
parentPort?.postMessage(tally)
