import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { steadyTimestamp } from '../../src/base/clock.ts'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { createToken } from '../../src/core/admin/tokens.ts'
import { type Front, openFront, testProfile } from '../support/front.ts'
import { isSigned, openReceiver, type Receiver } from '../support/receiver.ts'

let front: Front
let receiver: Receiver
let one: { orgId: string; headers: Record<string, string> }
let other: { orgId: string; headers: Record<string, string> }
let admin: Record<string, string>

beforeAll(async () => {
  front = await openFront(testProfile, { dev: false, trustedProxies: ['127.0.0.1'] })
  receiver = await openReceiver()
  one = await newOrg('One')
  other = await newOrg('Other')
  const { secret } = await createToken(front.core.adminContext, operator, { name: 'all', role: 'owner', org_id: null })
  admin = { authorization: `Bearer ${secret}` }
})
afterEach(() => {
  receiver.received.length = 0
  receiver.answer = (_received, response) => void response.writeHead(204).end()
})
afterAll(async () => {
  receiver.close()
  await front.close()
})

async function newOrg(name: string) {
  const { id: orgId } = await createOrg(front.core.adminContext, operator, name)
  const { secret } = await createKey(front.core.adminContext, operator, orgId, { name: 'k', profile: 'default' }, [])
  return { orgId, headers: { authorization: `Bearer ${secret}` } }
}

const path = '/v1/sandbox/execute'
const dayMs = 24 * 60 * 60 * 1000
const later = { prefer: 'respond-async' }
const patient = { timeout: 30_000, interval: 50 }

async function post(body: object, headers: Record<string, string> = { ...one.headers, ...later }) {
  const response = await front.post(path, { language: 'bash', ...body }, headers)
  return { status: response.status, headers: response.headers, body: (await response.json()) as Record<string, string> }
}

async function executionOf(id: string): Promise<Record<string, unknown>> {
  const response = await fetch(`${front.url}/v1/executions/${id}`, { headers: one.headers })
  return (await response.json()) as Record<string, unknown>
}

const secretOf = async (orgId: string, rest = '', method = 'GET') => {
  const url = `${front.url}/admin/v1/orgs/${orgId}/webhook-secret${rest}`
  const headers = { ...admin, 'content-type': 'application/json' }
  const sent = method === 'POST' ? { method, headers, body: '{}' } : { headers }
  const body = (await (await fetch(url, sent)).json()) as { secret: string }
  return body.secret
}

describe('an asynchronous execution', () => {
  it('is accepted immediately, continues in the background, and delivers its ending with a signature', async () => {
    const { status, headers, body } = await post({
      code: 'echo hi; sleep 0.3; exit 3',
      webhook_url: `${receiver.url}/hook?for=me`,
      metadata: { case: 1 },
    })
    expect([status, headers.get('preference-applied')]).toEqual([202, 'respond-async'])
    expect(body).toEqual({ trace_id: headers.get('x-trace-id'), status: 'running' })
    expect(await executionOf(body.trace_id!)).toMatchObject({
      status: 'running',
      delivery_mode: 'webhook',
      delivery: { status: 'pending', attempts: 0 },
    })
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), patient)
    const [told] = receiver.received
    expect(told?.path).toBe('/hook?for=me')
    expect(told?.body).toMatchObject({
      trace_id: body.trace_id,
      status: 'failed',
      exit_code: 3,
      stdout: 'hi\n',
      metadata: { case: 1 },
      delivery_mode: 'webhook',
    })
    expect(told?.headers['x-event-id']).toMatch(/^evt_/)
    const secret = await secretOf(one.orgId)
    expect(secret).toMatch(/^whsec_/)
    expect([isSigned(told!, secret), isSigned(told!, `${secret}x`)]).toEqual([true, false])
    await vi.waitFor(async () => {
      expect(await executionOf(body.trace_id!)).toMatchObject({ delivery: { status: 'delivered', attempts: 1 } })
    }, patient)
  })

  it('repeats the delivery with the same id until it is accepted', async () => {
    const answers = [500, 302, 200]
    receiver.answer = (_received, response) => {
      response.writeHead(answers.shift() ?? 500, { location: `${receiver.url}/elsewhere` }).end('x'.repeat(5_000))
    }
    const { body } = await post({ code: 'true', webhook_url: receiver.url })
    await vi.waitFor(() => expect(receiver.received).toHaveLength(2), patient)
    expect(await executionOf(body.trace_id!)).toMatchObject({ delivery: { status: 'pending' } })
    await vi.waitFor(async () => {
      expect(await executionOf(body.trace_id!)).toMatchObject({ delivery: { status: 'delivered', attempts: 3 } })
    }, patient)
    expect(new Set(receiver.received.map(({ headers }) => headers['x-event-id'])).size).toBe(1)
    expect(receiver.received.map((received) => received.path)).toEqual(['/', '/', '/'])
  })

  it.each([
    ['back', -dayMs],
    ['forward', dayMs],
  ])('repeats the delivery after the same pause when the clock is set %s by a day', async (_, jumpMs) => {
    const answers = [500, 200]
    receiver.answer = (_received, response) => void response.writeHead(answers.shift() ?? 500).end()
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() })
    try {
      const { body } = await post({ code: 'sleep 0.2', webhook_url: receiver.url })
      vi.setSystemTime(Date.now() + jumpMs)
      await vi.waitFor(async () => {
        expect(await executionOf(body.trace_id!)).toMatchObject({ delivery: { status: 'delivered', attempts: 2 } })
      }, patient)
    } finally {
      vi.useRealTimers()
    }
  })

  it('stops after the last attempt, and records the reason', async () => {
    receiver.answer = (_received, response) => void response.writeHead(503).end()
    const { body } = await post({ code: 'true', webhook_url: receiver.url })
    const id = body.trace_id!
    await vi.waitFor(async () => expect((await front.store.deliveries.get(id))?.attempts).toBe(1), patient)
    for (let attempts = 1; attempts < 6; attempts++) {
      // The delays grow to ten minutes: the stored time is set to now, as if they had passed.
      const row = (await front.store.deliveries.get(id))!
      await front.store.deliveries.settle(row.id, { ...row, dueAt: steadyTimestamp() })
      await vi.waitFor(
        async () => expect((await front.store.deliveries.get(id))?.attempts).toBeGreaterThan(attempts),
        patient,
      )
    }
    expect(await executionOf(id)).toMatchObject({
      delivery: {
        status: 'failed',
        attempts: 6,
        next_attempt_at: null,
        problem: 'The receiver responded with status 503.',
      },
    })
  })

  it('of one organization is delivered without waiting for the slow receiver of another', async () => {
    const held: { end(): void }[] = []
    receiver.answer = (received, response) => {
      if (received.path === '/slow') held.push(response)
      else response.writeHead(200).end()
    }
    for (let count = 0; count < 12; count++) await post({ code: 'true', webhook_url: `${receiver.url}/slow` })
    await vi.waitFor(() => expect(held).toHaveLength(4), patient)
    await post({ code: 'true', webhook_url: `${receiver.url}/quick` }, { ...other.headers, ...later })
    await vi.waitFor(() => expect(receiver.received.map((received) => received.path)).toContain('/quick'), patient)
    expect(held).toHaveLength(4)
    receiver.answer = (_received, response) => void response.writeHead(200).end()
    for (const response of held) response.end()
    await vi.waitFor(() => expect(receiver.received).toHaveLength(13), patient)
  })

  it('is executed and delivered once with an idempotency key', async () => {
    const body = { code: 'echo once', webhook_url: receiver.url, idempotency_key: 'later' }
    const [first, second] = [await post(body), await post(body)]
    expect([first.status, second.status, second.body.trace_id]).toEqual([202, 202, first.body.trace_id])
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), patient)
    const conflict = await post({ ...body, webhook_url: `${receiver.url}/other` })
    expect([conflict.status, conflict.body.error]).toEqual([409, 'conflict'])
  })

  it('is rejected without a delivery when the queue is full', async () => {
    front.runner.maxRuns = 0
    const { status, body } = await post({ code: 'true', webhook_url: receiver.url })
    front.runner.maxRuns = 32
    expect([status, body.error]).toEqual([503, 'unavailable'])
    await post({ code: 'echo next', webhook_url: receiver.url })
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), patient)
    expect(receiver.received[0]?.body).toMatchObject({ stdout: 'next\n' })
  })

  it('is not needed: the result of an asynchronous run can be fetched', async () => {
    const { status, body, headers } = await post({ code: 'echo fetched' })
    const location = headers.get('location') ?? ''
    expect([status, body.status, location]).toEqual([202, 'running', `${front.url}/v1/executions/${body.trace_id}`])
    const fetched = async () => {
      const response = await fetch(location, { headers: one.headers })
      return (await response.json()) as Record<string, unknown>
    }
    await expect
      .poll(fetched, patient)
      .toMatchObject({ status: 'success', stdout: 'fetched\n', delivery_mode: 'polling' })
    expect(await fetched()).toMatchObject({ delivery: null })
    expect(receiver.received).toEqual([])
  })

  it('is rejected for a forbidden address, before anything runs', async () => {
    const before = front.runner.specs.size
    const cases: [unknown, string][] = [
      [7, 'webhook_url must be a string'],
      ['ftp://x.example/', 'begins with https://'],
      ['http://8.8.8.8/', 'not https'],
      ['https://8.8.8.8:8443/', 'port 8443'],
      ['https://user:pass@hooks.example/', 'user name'],
      ['https://10.0.0.1/', 'public internet'],
      ['https://169.254.169.254/', 'public internet'],
      ['https://[::ffff:127.0.0.1]/', 'public internet'],
      ['https://0x7f000001/', 'usual form'],
    ]
    for (const [url, message] of cases) {
      const { status, body } = await post({ code: 'true', webhook_url: url })
      expect([url, status, body.error]).toEqual([url, 400, 'validation_error'])
      expect(body.message).toContain(message)
    }
    const inline = await post({ code: 'true', webhook_url: receiver.url }, one.headers)
    expect([inline.status, inline.body.message]).toEqual([400, expect.stringContaining('Prefer: respond-async')])
    expect(front.runner.specs.size).toBe(before)
  })
})

describe('the webhook signing secret', () => {
  it('belongs to one organization, and changes on rotation', async () => {
    const before = await secretOf(one.orgId)
    expect(await secretOf(one.orgId)).toBe(before)
    expect(await secretOf(other.orgId)).not.toBe(before)
    const after = await secretOf(one.orgId, '/rotate', 'POST')
    expect(after).not.toBe(before)
    expect(await secretOf(one.orgId)).toBe(after)
    await post({ code: 'true', webhook_url: receiver.url })
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), patient)
    expect([isSigned(receiver.received[0]!, after), isSigned(receiver.received[0]!, before)]).toEqual([true, false])
    const {
      rows: [line],
    } = await front.store.audit.newest({}, 2 ** 53 - 1, 1)
    expect(JSON.stringify(await front.store.audit.newest({}, 2 ** 53 - 1, 10))).toContain('webhook_secret.rotate')
    expect(JSON.stringify(line)).not.toContain(after)
  })

  it('is available to administrators only', async () => {
    const url = `${front.url}/admin/v1/orgs/${one.orgId}/webhook-secret`
    expect((await fetch(url, { headers: one.headers })).status).toBe(401)
    const { secret } = await createToken(front.core.adminContext, operator, {
      name: 'looks',
      role: 'member',
      org_id: null,
    })
    expect((await fetch(url, { headers: { authorization: `Bearer ${secret}` } })).status).toBe(403)
  })
})

describe('the retention of run data', () => {
  it('is configured over the admin API', async () => {
    const url = `${front.url}/admin/v1/orgs/${one.orgId}/history`
    const change = (body: object) =>
      fetch(url, {
        method: 'PATCH',
        headers: { ...admin, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      })
    expect(await (await fetch(url, { headers: admin })).json()).toEqual({ keep_code: false, keep_output: false })
    expect(await (await change({ keep_code: true })).json()).toEqual({ keep_code: true, keep_output: false })
    expect(await (await fetch(url, { headers: admin })).json()).toEqual({ keep_code: true, keep_output: false })
    expect((await change({ keep_code: 'yes' })).status).toBe(400)
    expect((await change({ keep_everything: true })).status).toBe(400)
  })
})
