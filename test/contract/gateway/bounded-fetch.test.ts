import { Agent } from 'undici'
import { afterAll, expect, it } from 'vitest'
import { boundedFetch } from '../../../src/gateway/bounded-fetch.ts'
import { openUpstream } from '../../support/upstreams.ts'

const mebibyte = 1024 * 1024
const bodies: Record<string, string> = {
  values: `[${'[],'.repeat(mebibyte)}1]`,
  large: JSON.stringify('x'.repeat(3 * mebibyte)),
  usual: JSON.stringify(
    Array.from({ length: 1_000 }, (_, n) => ({ name: `tool ${n}`, inputSchema: { type: 'object' } })),
  ),
}
const agent = new Agent()
const upstream = await openUpstream((request, response) => response.end(bodies[request.url!.slice(1)]))
afterAll(async () => {
  upstream.close()
  await agent.close()
})

it('fails for responses of too many bytes, or of too many values, before they are read', async () => {
  const get = async (name: string) =>
    (await boundedFetch(agent, new AbortController().signal, 4 * mebibyte)(new URL(`/${name}`, upstream.url))).json()
  await expect(get('values')).rejects.toThrow('more than 300000 values')
  expect(await get('large')).toHaveLength(3 * mebibyte)
  expect(await get('usual')).toHaveLength(1_000)
})
