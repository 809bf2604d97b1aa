import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { conformanceOffers } from '../conformance/inventory.ts'
import { type Front, openFront } from '../support/front.ts'
import { askModern } from '../support/modern.ts'

/** Its argument `region` is marked to be repeated as a header. */
const name = 'test_x_mcp_header'

let front: Front
beforeAll(async () => {
  front = await openFront(undefined, {}, conformanceOffers())
})
afterAll(async () => {
  await front.close()
})

const base64 = (text: string | Buffer) => `=?base64?${Buffer.from(text).toString('base64')}?=`

async function call(region: unknown, header?: string, headerName = 'mcp-param-region') {
  const headers = header === undefined ? {} : { [headerName]: header }
  const given = region === undefined ? {} : { region }
  const { status, body } = await askModern(front.url, 'tools/call', { name, arguments: given }, { headers })
  return body.error ? [status, body.error.code] : [status, body.result?.content]
}
const told = (given: object) => [200, [{ type: 'text', text: JSON.stringify(given) }]]
const refused = [400, -32020]

describe('an argument that is mirrored as a header', () => {
  it('is accepted verbatim, whatever the case of the header name', async () => {
    expect(await call('eu-west', 'eu-west')).toEqual(told({ region: 'eu-west' }))
    expect(await call('eu-west', '  eu-west ', 'Mcp-Param-REGION')).toEqual(told({ region: 'eu-west' }))
  })

  it('is accepted as base64 when HTTP cannot carry it', async () => {
    for (const region of ['Zürich ☂', ' spaces around ', 'a\r\nb: c', '', '=?base64?YQ==?=', 'plain'])
      expect([region, await call(region, base64(region))]).toEqual([region, told({ region })])
  })

  it('is taken literally when one end of the base64 form is missing', async () => {
    for (const region of ['=?base64?YQ==', 'YQ==?=', '=?utf-8?YQ==?='])
      expect([region, await call(region, region)]).toEqual([region, told({ region })])
  })

  it('is rejected before anything runs when header and body differ', async () => {
    const differing: [unknown, string | undefined][] = [
      ['eu', 'us'],
      ['eu', 'EU'],
      ['eu', undefined],
      ['eu', ''],
      [undefined, 'eu'],
      [null, 'eu'],
      ['eu', base64('us')],
      ['eu', 'eu, eu'],
      ['a', '=?base64?YQ?='], // Without its padding.
      ['a', '=?base64?Y!==?='],
      ['\ufffd', base64(Buffer.from([0xff]))], // Bytes that are not valid text.
    ]
    for (const [region, header] of differing)
      expect([region, header, await call(region, header)]).toEqual([region, header, refused])
  })

  it('needs no header when it is absent', async () => {
    expect(await call(undefined)).toEqual(told({}))
    expect(await call(null)).toEqual(told({ region: null }))
  })
})
