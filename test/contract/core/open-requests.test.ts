import { describe, expect, it } from 'vitest'
import { OpenRequests } from '../../../src/core/access/open-requests.ts'
import { testProfile } from '../../support/front.ts'

const caller = (orgId: string, keyId: string) => ({
  orgId,
  keyId,
  profile: testProfile,
  env: {},
  tools: null,
  upstreamPolicy: null,
})

function openRequests(bufferBytes = 4_000): OpenRequests {
  return new OpenRequests(
    { perKey: 10, perOrg: 15, transfersPerKey: 8, bufferBytes },
    async (keyId) => caller('org', keyId),
    (error) => expect(error).toBeUndefined(),
  )
}

describe('memory for responses that are not read', () => {
  it('ends the request that holds most of an organization, and none of another one', () => {
    const requests = openRequests()
    const ended: string[] = []
    const open = (orgId: string, name: string) => requests.open(caller(orgId, `key_${orgId}`), () => ended.push(name))
    const good = open('good', 'good')
    good.holdUnread(900)
    const [small, large] = [open('hostile', 'small'), open('hostile', 'large')]
    small.holdUnread(300)
    large.holdUnread(600)
    expect(ended).toEqual([])
    small.holdUnread(500)
    expect(ended).toEqual(['large'])
    expect(requests.usage).toEqual({ requests: 2, bytes: 1_400 })
  })

  it('ends the largest of all organizations when the total is reached', () => {
    const requests = openRequests()
    const ended: string[] = []
    for (const org of ['a', 'b', 'c', 'd'])
      requests.open(caller(org, `key_${org}`), () => ended.push(org)).holdUnread(org === 'c' ? 990 : 960)
    requests.open(caller('e', 'key_e'), () => ended.push('e')).holdUnread(200)
    expect(ended).toEqual(['c'])
  })
})

describe('memory for bodies', () => {
  it('is refused beyond the share of an organization, and released with the request', () => {
    const requests = openRequests()
    const open = () => requests.open(caller('org', 'key_1'), () => {})
    const first = open()
    first.holdBody(900)
    const second = open()
    expect(() => second.holdBody(200)).toThrow(expect.objectContaining({ code: 'buffers_full' }))
    first.close()
    first.close()
    second.holdBody(200)
    second.close()
    expect(requests.usage).toEqual({ requests: 0, bytes: 0 })
  })
})

describe('open requests', () => {
  it('are refused beyond the limit of a key and of an organization', () => {
    const requests = openRequests()
    const open = (keyId: string) => requests.open(caller('org', keyId), () => {})
    for (let n = 0; n < 10; n++) open('key_1')
    expect(() => open('key_1')).toThrow(expect.objectContaining({ code: 'requests_full' }))
    for (let n = 0; n < 5; n++) open('key_2')
    expect(() => open('key_3')).toThrow(expect.objectContaining({ code: 'requests_full' }))
    expect(requests.usage.requests).toBe(15)
  })
})
