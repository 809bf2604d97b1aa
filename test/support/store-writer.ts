/**
 * A separate process that writes runs into a database until it is killed: `node store-writer.ts PATH NAME COUNT`.
 * It prints the id of each run only after the store has confirmed its ending.
 */
import { writeSync } from 'node:fs'
import { openStore } from '../../src/store/sqlite.ts'
import { finishedResult, org, plainKey, plainProfile, plainRun } from './rows.ts'

const [path = '', name = '', count = '0'] = process.argv.slice(2)
const store = await openStore(path)
await store.orgs.ensure(org)
await store.keys.ensure(plainKey)
await store.profiles.ensure(plainProfile)
for (let index = 0; index < Number(count); index++) {
  const id = `trc_${name}_${index}`
  await store.runs.begin(plainRun(id))
  await store.runs.finish(id, '2026-01-01T00:00:01.000Z', finishedResult.ending, finishedResult)
  writeSync(1, `${id}\n`)
}
await store.close()
