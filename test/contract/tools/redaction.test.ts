import Type from 'typebox'
import { describe, expect, it } from 'vitest'
import { Refusal } from '../../../src/base/errors.ts'
import type { Caller } from '../../../src/core/caller.ts'
import { type ToolContext, tool } from '../../../src/tools/tool.ts'
import { testProfile } from '../../support/front.ts'

const token = `ghp_${'a1B2'.repeat(9)}`
const secretive: Caller = {
  orgId: 'org_a',
  keyId: 'key_a',
  profile: { ...testProfile, calls: { ...testProfile.calls, redactOutput: true } },
  env: { DB_PASSWORD: 'tr0ub4dor and 3', REGION: 'eu-central-1' },
  tools: null,
  upstreamPolicy: null,
}
const open: Caller = { ...secretive, profile: testProfile }

const echo = tool({
  name: 'echo',
  title: 'Echo',
  toolset: 'execute',
  capabilities: [],
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true },
  describe: () => 'Return a text.',
  input: Type.Object({ text: Type.String() }, { additionalProperties: false }),
  narrow: (input) => input,
  run: async (_caller, { text }, { progress }) => {
    if (text === 'refuse') throw new Refusal('not_found', { what: `The token ${token}` })
    await progress?.({ message: text.slice(0, 20) })
    await progress?.({ message: `${text.slice(20)}\n` })
    return { content: [{ type: 'text', text }], structuredContent: { stdout: text }, isError: false }
  },
})

describe('a profile with redact_output', () => {
  const messages: string[] = []
  /** Of the organization: a secret for the network, and a token for an upstream. */
  const registered = [
    { name: 'PAYMENTS', value: 'ordinary words in a row' },
    { name: 'vendor/mail', value: 'eA7+/kq' },
  ]
  const context = {
    core: { registeredSecrets: async () => registered },
    progress: async ({ message }: { message: string }) => void messages.push(message),
  } as unknown as ToolContext

  it('removes secrets from text, structured content and split progress', async () => {
    const text = `cloning with ${token} from eu-central-1`
    const result = await echo.call(secretive, { text }, context)
    const shown = 'cloning with [REDACTED:github-pat] from eu-central-1'
    expect(result.content).toEqual([{ type: 'text', text: shown }])
    expect(result.structuredContent).toEqual({ stdout: shown })
    expect(messages.join('')).toBe(`${shown}\n`)
  })

  it('removes the secret variables of the key in every encoding', async () => {
    const value = secretive.env.DB_PASSWORD!
    const text = `${value} ${Buffer.from(value).toString('base64')} ${encodeURIComponent(value)}`
    const { content } = await echo.call(secretive, { text }, context)
    expect(content).toEqual([
      { type: 'text', text: expect.stringMatching(/^\[REDACTED:DB_PASSWORD\] \S*\[REDACTED:DB_PASSWORD\]\S* \[RED/) },
    ])
  })

  it('removes the secrets of the organization in every encoding, also when progress splits them', async () => {
    for (const { name, value } of registered) {
      for (const [encoded, shown] of [
        [value, 'it is [REDACTED:x] here'],
        [Buffer.from(value).toString('hex'), 'it is [REDACTED:x] here'],
        [encodeURIComponent(value), 'it is [REDACTED:x] here'],
        [JSON.stringify(value), 'it is "[REDACTED:x]" here'],
      ] as const) {
        messages.length = 0
        const { content } = await echo.call(secretive, { text: `it is ${encoded} here` }, context)
        const expected = shown.replace('x', name.replace('/', '_'))
        expect(content).toEqual([{ type: 'text', text: expected }])
        expect(messages.join('')).toBe(`${expected}\n`)
      }
      const base64 = Buffer.from(`user:${value}`).toString('base64')
      const { content } = await echo.call(secretive, { text: base64 }, context)
      expect(content).toEqual([{ type: 'text', text: expect.stringContaining(`[REDACTED:${name.replace('/', '_')}]`) }])
    }
  })

  it('removes secrets from errors', async () => {
    await expect(echo.call(secretive, { text: 'refuse' }, context)).rejects.toThrow(
      'The token [REDACTED:github-pat] does not exist.',
    )
  })

  it('is off by default', async () => {
    const { content } = await echo.call(open, { text: token }, context)
    expect(content).toEqual([{ type: 'text', text: token }])
  })
})
