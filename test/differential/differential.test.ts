import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type OpenCore, openCore } from '../support/front.ts'
import { explained } from './explained.ts'
import { damages, legacyRequest, modernRequest, toSent } from './requests.ts'
import { type AnswerTo, type Outcome, official, officialV1, ours, type Sent } from './servers.ts'

let opened: OpenCore
let own: AnswerTo
beforeAll(async () => {
  opened = await openCore()
  own = ours(opened)
})
afterAll(async () => {
  await opened.close()
})

/** Explanations that were used at least once. */
const needed = new Set<string>()

const shown = ({ status, said, id }: Outcome): string => `${status} ${said} ${JSON.stringify(id)}`

/** Sends the same requests to both servers and collects the unexplained differences. */
async function compare(
  judge: AnswerTo,
  judgeName: string,
  wrong: string,
  sent: Sent,
  unexplained: Map<string, string>,
) {
  const [mine, theirs] = await Promise.all([own(sent), judge(sent)])
  if (shown(mine) === shown(theirs)) return
  const why = explained.find(({ applies }) => applies({ wrong, sent, mine, theirs, judge: judgeName }))
  if (why) {
    needed.add(why.reason)
    return
  }
  const gist = ({ status, said, id }: Outcome) =>
    `${status} ${said.replace(/\{.*/, '')}${id === undefined || id === null ? '' : 'id'}`
  const key = `${judgeName}, ${wrong}: ours ${gist(mine)}, theirs ${gist(theirs)}`
  if (!unexplained.has(key)) unexplained.set(key, `${JSON.stringify(sent.headers)} ${sent.body}`)
}

const judges = [
  ['the second version', 'stateless era', official(), modernRequest, 2_000],
  ['the second version', 'era before', official(), legacyRequest, 1_000],
  ['the first version', 'era before', officialV1(), legacyRequest, 1_000],
] as const

describe('our MCP handler and the official server', () => {
  for (const [version, era, judge, request, runs] of judges) {
    it(`give equivalent responses to generated requests: ${version}, ${era}`, async () => {
      const unexplained = new Map<string, string>()
      await fc.assert(
        fc.asyncProperty(request, async (asked) => {
          await compare(judge, version, 'nothing', toSent(asked), unexplained)
        }),
        { numRuns: runs / 2 },
      )
      await fc.assert(
        fc.asyncProperty(request, fc.constantFrom(...Object.keys(damages)), async (asked, wrong) => {
          await compare(judge, version, wrong, toSent(damages[wrong]!(asked)), unexplained)
        }),
        { numRuns: runs },
      )
      expect(Object.fromEntries(unexplained)).toEqual({})
    }, 120_000)
  }

  it('need every explanation in the list', () => {
    expect(explained.map(({ reason }) => reason).filter((reason) => !needed.has(reason))).toEqual([])
  })

  it('survive arbitrary bytes', async () => {
    const bytes = fc.oneof(fc.string(), fc.string({ unit: 'binary' }), fc.json())
    await fc.assert(
      fc.asyncProperty(bytes, fc.constantFrom(undefined, '2026-07-28', '2025-11-25'), async (body, version) => {
        const headers = { 'content-type': 'application/json', ...(version && { 'mcp-protocol-version': version }) }
        const { status } = await own({ headers, body })
        expect(status === 500).toBe(false)
      }),
      { numRuns: 1_000 },
    )
    expect(opened.lines.filter((line) => line.includes('"level":"error"'))).toEqual([])
  })
})
