import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../../src/core/admin/admin.ts'
import { setLimits } from '../../../src/core/admin/limits.ts'
import { createVolume } from '../../../src/core/admin/volumes.ts'
import { type OpenCore, openCore, threadsProfile } from '../../support/front.ts'

const quotaBytes = 8 * 1024 * 1024

let opened: OpenCore
beforeAll(async () => {
  opened = await openCore(threadsProfile)
})
afterAll(() => opened.close())

const never = new AbortController().signal

async function run(threadId: string): Promise<void> {
  const request = { code: 'true', language: 'bash', detached: true, threadId } as const
  for await (const _ of opened.core.execute(opened.caller, request, never));
}

const keptBytes = async () =>
  (await opened.store.threads.quotaBytes(opened.caller.orgId)) +
  (await opened.store.volumes.quotaBytes(opened.caller.orgId))

describe('the storage limit of an organization', () => {
  it('holds for everything that creates storage at the same moment', async () => {
    const { core, caller } = opened
    const { orgId } = caller
    await run('first')
    await setLimits(core.adminContext, operator, { orgId }, { storage_bytes: (await keptBytes()) + 2 * quotaBytes })
    const ways = [
      (n: number) => run(`run-${n}`),
      (n: number) => core.threads.fork(caller, 'first', `fork-${n}`),
      (n: number) => core.files.write(caller, { source: 'thread', id: `file-${n}`, path: 'a' }, [Buffer.from('a')]),
      (n: number) => createVolume(core.adminContext, operator, orgId, { slug: `v-${n}`, quota_bytes: quotaBytes }),
    ]
    const calls = Array.from({ length: 16 }, (_, n) => ways[n % ways.length]!(n))
    const outcomes = await Promise.allSettled(calls)
    const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as unknown] : []))
    expect(refused).toHaveLength(14)
    for (const refusal of refused) {
      expect(refusal).toMatchObject({ code: 'limit_reached', details: { limit: 'storage_bytes' } })
    }
    expect(await keptBytes()).toBe(3 * quotaBytes)
  })
})
