/** What the next call says when the variables of a sandbox were lost because the server stopped it. */
import { beforeAll, describe, expect, it } from 'vitest'
import { killIfThere, until } from '../support/glovebox.ts'
import { manageKeys, newKey, type OwnKey } from '../support/keys.ts'
import { openStory } from '../support/story.ts'

const story = openStory(['--no-dev'])

interface Body {
  state?: string
  reason?: string | null
  lost_before?: string | null
  ending?: { kind: string; name?: string }
}

let key: OwnKey

beforeAll(async () => {
  key = await newKey(story.place, '--org', 'acme')
})

async function ask(method: 'GET' | 'POST', path: string, body: object = {}, as: OwnKey = key): Promise<Body> {
  const response = await fetch(`${story.url}/v1/sandboxes${path}`, {
    method,
    headers: { ...as.headers, ...(method === 'POST' && { 'content-type': 'application/json' }) },
    ...(method === 'POST' && { body: JSON.stringify(body) }),
  })
  const answer = (await response.json()) as Body
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`)
  return answer
}

const run = (name: string, code: string, as = key) => ask('POST', `/${name}/code`, { language: 'python', code }, as)

/** Starts a sandbox when it was stopped for a reason: the first call says so, and the next one does not. */
async function expectLost(name: string, reason: string): Promise<void> {
  await until(async () => (await ask('GET', `/${name}`)).state === 'stopped', `${name} is stopped`)
  expect(await ask('GET', `/${name}`)).toMatchObject({ reason })
  await ask('POST', `/${name}/start`)
  // The calls that follow may take longer than the limits that ended it.
  await ask('POST', `/${name}/extend`, { idle_timeout: 0, lifetime: 0 })
  expect(await run(name, 'kept')).toMatchObject({
    ending: { kind: 'raised', name: 'NameError' },
    lost_before: `the sandbox was stopped (${reason})`,
  })
  expect(await run(name, '1')).toMatchObject({ lost_before: null })
}

describe('the first call after a sandbox was stopped', () => {
  it.each([
    ['idle', { idle_timeout: 4 }],
    ['lifetime', { lifetime: 4 }],
  ])('says that the variables were lost: %s', async (reason, limits) => {
    await ask('POST', '', { name: reason })
    await run(reason, 'kept = 1')
    await ask('POST', `/${reason}/extend`, limits)
    await expectLost(reason, reason)
  })

  it('says that they were lost with the key that had started it', async () => {
    const other = await newKey(story.place, '--org', 'acme')
    await ask('POST', '', { name: 'revoked' }, other)
    await run('revoked', 'kept = 1', other)
    expect((await manageKeys(story.place, ['revoke', other.id])).code).toBe(0)
    await expectLost('revoked', 'key_revoked')
  })

  it('says that they were lost in a stop that a killed front had begun', async () => {
    await ask('POST', '', { name: 'front' })
    // A stop lasts as long as processes may take to end.
    await run('front', 'import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); kept = 1')
    await ask('POST', '/front/extend', { idle_timeout: 4 })
    await until(async () => (await ask('GET', '/front')).state !== 'running', 'its stop has begun')
    const { frontPid } = story.server
    killIfThere(frontPid)
    await until(() => isNextFront(frontPid), 'the next front is ready')
    await expectLost('front', 'idle')
  })
})

async function isNextFront(killedPid: number): Promise<boolean> {
  try {
    return story.server.frontPid !== killedPid && (await ask('GET', '/front')).state !== undefined
  } catch {
    return false
  }
}
