import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openStore } from '../../../src/store/sqlite.ts'
import { Checkpoints } from '../../../src/store/sqlite-checkpoints.ts'
import type { Store } from '../../../src/store/store.ts'
import { until } from '../../support/glovebox.ts'
import { finishedResult, org, plainKey, plainProfile, plainRun } from '../../support/rows.ts'

const at = '2026-01-01T00:00:01.000Z'
const mebibyte = 1024 * 1024
const errors: string[] = []
let directory: string
let path: string
let store: Store

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'glovebox-checkpoints-'))
  path = join(directory, 'glovebox.db')
  store = await openStore(path, { onCheckpointError: (problem) => errors.push(problem) })
  await store.orgs.ensure(org)
  await store.keys.ensure(plainKey)
  await store.profiles.ensure(plainProfile)
})
afterEach(async () => {
  await store.close()
  rmSync(directory, { recursive: true })
})

const stream = { head: Buffer.alloc(mebibyte, 'x'), omittedBytes: 0, tail: Buffer.alloc(0) }
const output = { stdout: stream, stderr: { ...stream, head: Buffer.alloc(0) }, images: [] }

async function endRuns(from: number, to: number): Promise<void> {
  for (let n = from; n < to; n++) {
    await store.runs.begin(plainRun(`trc_${n}`))
    await store.runs.finish(`trc_${n}`, at, finishedResult.ending, finishedResult, output)
    await setImmediate()
  }
}

/** Pages in the log, and how many of them are in the database as well; asked by a connection of another program. */
function logState(): { log: number; checkpointed: number } {
  const other = new DatabaseSync(path)
  try {
    const { log, checkpointed } = other.prepare('pragma wal_checkpoint(noop)').get() as Record<string, number>
    return { log: log!, checkpointed: checkpointed! }
  } finally {
    other.close()
  }
}

describe('the database of a server', () => {
  it('gets what is in its log from a thread, while nothing is written', async () => {
    await endRuns(0, 40)
    // Fewer pages than those at which a commit would move them.
    await until(() => logState().checkpointed >= 8_192, 'the pages were moved')
    expect(statSync(path).size).toBeGreaterThan(32 * mebibyte)
    expect(errors).toEqual([])
  })

  it('keeps its log within bounds while large output is written without a pause', async () => {
    await endRuns(0, 400)
    expect(statSync(`${path}-wal`).size).toBeLessThan(300 * mebibyte)
    const kept = await Promise.all([0, 399].map((n) => store.runs.output(`trc_${n}`)))
    for (const each of kept) expect(each?.stdout.head.length).toBe(mebibyte)
    expect(errors).toEqual([])
  })

  it('keeps all that was committed when it is closed while pages are moved', async () => {
    await endRuns(0, 60)
    await store.close()
    store = await openStore(path)
    expect((await store.runs.output('trc_59'))?.stdout.head).toEqual(new Uint8Array(stream.head))
  })

  it('has its log reported once when it cannot be moved, however often that is tried', async () => {
    const problems: string[] = []
    const checkpoints = new Checkpoints(join(directory, 'missing', 'glovebox.db'), 1, (one) => problems.push(one))
    try {
      await until(() => problems.length > 0, 'the problem is reported')
      // Two more attempts.
      await sleep(2_500)
      expect(problems).toEqual([expect.stringContaining('unable to open database file')])
    } finally {
      await checkpoints.close()
    }
  })
})
