import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { judge } from '../support/conformance.ts'
import { type Front, openFront } from '../support/front.ts'
import { conformanceOffers } from './inventory.ts'

let fixture: Front
let product: Front
beforeAll(async () => {
  fixture = await openFront(undefined, {}, conformanceOffers())
  product = await openFront()
})
afterAll(async () => {
  await fixture.close()
  await product.close()
})

describe('the official conformance suite', () => {
  it('passes for 2026-07-28, its extensions and the scenarios that it does not score yet', async () => {
    const { scenarios, passed, complaints } = await judge(`${fixture.url}/mcp`, '--requirements', '2026-07-28')
    expect(complaints).toEqual([])
    expect(scenarios).toContain('tasks-mrtr-composition')
    expect(scenarios).toHaveLength(50)
    expect(passed).toBeGreaterThanOrEqual(194)
  }, 120_000)

  it('passes for 2025-11-25, in a session for scenarios that call the client back', async () => {
    const url = `${fixture.url}/mcp?session=true`
    const { scenarios, passed, complaints } = await judge(url, '--requirements', '2025-11-25')
    expect(complaints).toEqual([])
    expect(scenarios).toHaveLength(33)
    expect(passed).toBeGreaterThanOrEqual(80)
  }, 120_000)

  const anyServer = [
    ['tools-list', '2026-07-28'],
    ['resources-list', '2026-07-28'],
    ['sep-2164-resource-not-found', '2026-07-28'],
    ['http-header-validation', '2026-07-28'],
    ['dns-rebinding-protection', '2026-07-28'],
    ['server-initialize', '2025-11-25'],
    ['ping', '2025-11-25'],
    ['logging-set-level', '2025-11-25'],
  ] as const
  for (const [scenario, version] of anyServer) {
    it(`passes against the product itself: ${scenario} of ${version}`, async () => {
      const verdict = await judge(`${product.url}/mcp`, '--scenario', scenario, '--spec-version', version)
      expect(verdict.complaints).toEqual([])
      expect(verdict.passed).toBeGreaterThan(0)
    }, 60_000)
  }
})
