import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { callTool, execute, executeBody, type Following, follow, post } from '../support/calls.ts'
import { type Glovebox, killIfThere, Place, until } from '../support/glovebox.ts'
import { slotsOf } from '../support/machine.ts'
import { sendModern } from '../support/modern.ts'

const place = new Place()
let server: Glovebox
const flags = [
  '--no-prewarm-jails',
  '--storage-reserve',
  '0',
  '--limit-thread',
  '32MiB',
  '--limit-memory',
  '64MiB',
  '--output-hard',
  '1MiB',
]
beforeAll(async () => {
  server = await place.start(...flags, '--runs-max', '3')
}, 60_000)
afterAll(() => place.remove())

function locks(): unknown[] {
  const database = new DatabaseSync(join(place.directory, 'home/front/glovebox.db'), { readOnly: true })
  try {
    return database.prepare('select id from threads where locked_by is not null').all()
  } finally {
    database.close()
  }
}

const nothing = async () => undefined
const cancel = ({ runId }: Following) => post(`${server.url}/v1/executions/${runId}/cancel`, {})
/** A stuck run has five processes; a jail that waits for a run has two. */
const slotThatRuns = () => slotsOf(place).find(({ runPids }) => runPids.length > 3)

async function killSlot(): Promise<void> {
  await until(() => slotThatRuns() !== undefined, 'it runs')
  killIfThere(slotThatRuns()?.guestPid ?? 0)
}

/** Ignores termination signals, and uses the thread from more than one process. */
const stuck = `
import os, signal, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        with open(f'held{n}', 'w') as f:
            while True: f.write('x'); f.flush(); time.sleep(0.01)
while True: time.sleep(1)
`
const begin = "import os\nopen('kept', 'w').write('kept')\nos.sync()\nprint('on', flush=True)\n"

const ends: [ending: string, how: string, code: string, more: object, end: (run: Following) => Promise<unknown>][] = [
  ['timed_out', 'one that is stuck', stuck, { timeout: 1 }, nothing],
  ['cancelled', 'one that is stuck', stuck, {}, cancel],
  ['out_of_memory', 'one that takes too much', 'x = bytearray(512 << 20)', {}, nothing],
  ['output_limit', 'one that prints without end', 'while True: print("x" * 65536)', {}, nothing],
  ['disk_quota', 'one that fills it', 'open("big", "wb").write(bytes(64 << 20))', {}, nothing],
  [
    'signaled',
    'one that kills everything it sees',
    'if os.fork(): os.kill(-1, 9) or os.kill(os.getpid(), 9)\nelse: import signal; signal.pause()',
    {},
    nothing,
  ],
  ['exited', 'one that stops its children', 'if os.fork() == 0: os.kill(os.getpid(), 19)', {}, nothing],
  ['failed', 'one whose slot is killed', stuck, {}, killSlot],
]

describe('a thread is free and its data saved as soon as its call has ended', () => {
  it.each(ends)('as %s: %s', async (ending, how, code, more, end) => {
    const thread_id = `${ending}-${how.replaceAll(' ', '-')}`
    const run = await follow(server.url, 'python', begin + code, { timeout: 30, thread_id, ...more })
    await run.said('on')
    await end(run)
    expect(await run.result).toMatchObject({ ending: { kind: ending } })
    // Immediately: the ending is reported after the jail is dead, not before.
    const next = await execute(server.url, 'bash', 'rm -f big; cat kept; echo more >>kept', { thread_id })
    expect(next).toMatchObject({ stdout: 'kept', exit_code: 0 })
    expect(locks()).toEqual([])
  })

  it('by the death of any process of its slot, including the guest, the jailer and the init of the jail', async () => {
    const thread_id = 'any-process'
    const endings = new Set<string>()
    for (let nth = 0, count = 1; nth < count; nth++) {
      const run = await follow(server.url, 'python', begin + stuck, { timeout: 30, thread_id })
      await run.said('on')
      await until(() => (slotThatRuns()?.runPids.length ?? 0) >= 5, 'all of it runs')
      const pids = slotThatRuns()?.pids ?? []
      count = Math.max(count, pids.length)
      const victim = pids[nth]
      if (victim !== undefined) killIfThere(victim)
      const cancelled = setTimeout(() => void cancel(run), 2_000) // A child or a spare process, which no process waits for.
      const { ending } = await run.result
      clearTimeout(cancelled)
      endings.add(ending?.kind ?? '')
      const next = await execute(server.url, 'bash', 'cat kept && rm kept', { thread_id })
      expect(next, `after ${nth} of ${count}`).toMatchObject({ stdout: 'kept', exit_code: 0 })
      expect(locks()).toEqual([])
    }
    expect([...endings]).toEqual(expect.arrayContaining(['failed', 'signaled', 'cancelled']))
  })

  it('by a cancellation notification of a client with sessions', async () => {
    const args = { language: 'python', code: begin + stuck, thread_id: 'notified' }
    const asked = post(`${server.url}/mcp`, executeBody('notified', args))
    await until(() => slotThatRuns() !== undefined && locks().length === 1, 'it runs')
    expect((await callTool(server.url, { ...args, code: '1' })).status).toBe(409)
    const params = { requestId: 'notified' }
    await post(`${server.url}/mcp`, { jsonrpc: '2.0', method: 'notifications/cancelled', params })
    await asked
    await until(() => locks().length === 0, 'its thread is free')
    expect(slotThatRuns()).toBeUndefined()
    expect((await callTool(server.url, { ...args, code: '1' })).status).toBe(200)
  })

  it('by a closed stream of a 2026-07-28 client', async () => {
    const client = new AbortController()
    const params = { name: 'sandbox_execute', arguments: { language: 'python', code: stuck, thread_id: 'closed' } }
    const asked = sendModern(server.url, 'tools/call', params, { signal: client.signal }).catch(() => 'gone')
    await until(() => slotThatRuns() !== undefined && locks().length === 1, 'it runs')
    client.abort()
    await asked
    await until(() => locks().length === 0, 'its thread is free')
    expect(slotThatRuns()).toBeUndefined()
    expect(await execute(server.url, 'bash', 'echo free', { thread_id: 'closed' })).toMatchObject({ stdout: 'free\n' })
  })

  it('by server shutdown: finished runs keep their output, and the next start finds both threads free and intact', async () => {
    const short = await follow(server.url, 'bash', 'echo on; sleep 0.5; echo all >done', { thread_id: 'short' })
    const long = await follow(server.url, 'python', begin + stuck, { thread_id: 'long' })
    await Promise.all([short.said('on'), long.said('on')])
    expect(await server.stop()).toEqual({ code: 0, signal: null })
    expect(await short.result).toMatchObject({ ending: { kind: 'exited', code: 0 } })
    expect(await long.result).toMatchObject({ ending: { kind: 'shutdown' } })
    expect(locks()).toEqual([])
    server = await place.start(...flags)
    expect((await execute(server.url, 'bash', 'cat done', { thread_id: 'short' })).stdout).toBe('all\n')
    expect((await execute(server.url, 'bash', 'cat kept', { thread_id: 'long' })).stdout).toBe('kept')
    expect(server.warnings.filter(({ msg }) => /crash|unmounted/.test(msg ?? ''))).toEqual([])
  })
})
