import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { type PortAccess, portAccesses } from '../../base/sandbox.ts'
import { previewUrls } from '../../core/sandboxes/ports/address.ts'
import { type PublishedPort, portLifeMaxSeconds } from '../../core/sandboxes/ports/ports.ts'
import { tool } from '../tool.ts'
import { target, textResult, toRef } from './arguments.ts'

const actions = ['publish', 'list', 'withdraw'] as const

export const sandboxPorts = tool({
  name: 'sandbox_ports',
  title: 'Publish ports of a sandbox',
  toolset: 'sandbox',
  capabilities: ['sandboxes.read', 'sandboxes.write'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: true },
  describe: () =>
    'Show a server in a sandbox, such as a web page, to the user: publish returns an address that the user can open in a browser. The server must listen on the port in the sandbox; start it with sandbox_processes. Its links should be relative. list shows the published ports, withdraw ends an address.',
  input: Type.Object(
    {
      ...target,
      action: Type.Unsafe<(typeof actions)[number]>({ type: 'string', enum: [...actions] }),
      port: Type.Optional(
        Type.Integer({ minimum: 1, maximum: 65_535, description: 'Port of the server; for publish and withdraw.' }),
      ),
      access: Type.Optional(
        Type.Unsafe<PortAccess>({
          type: 'string',
          enum: [...portAccesses],
          description:
            'For publish. key (default): only with the address that is returned, for at most 12 hours. public: all who know the address.',
        }),
      ),
      expires_in: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: portLifeMaxSeconds,
          description: 'For publish: seconds; a day by default.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (caller, given, { core, baseUrl }) => {
    const ref = toRef(given)
    const known = await core.sandboxPorts.list(caller, ref)
    const others = known.filter(({ port }) => port !== given.port)
    switch (given.action) {
      case 'publish': {
        const { port = missing(), access, expires_in: expiresIn } = given
        const published = await core.sandboxPorts.publish(caller, ref, { port, access, expiresIn })
        return textResult(listOf([published, ...others], baseUrl))
      }
      case 'list':
        return textResult(listOf(known, baseUrl))
      case 'withdraw': {
        const { port = missing() } = given
        await core.sandboxPorts.withdraw(caller, ref, port)
        return textResult(`Port ${port} is withdrawn.\n${listOf(others, baseUrl)}`)
      }
    }
  },
})

function missing(): never {
  throw new Refusal('invalid_argument', { field: 'port', problem: 'is required for this action' })
}

function listOf(ports: readonly PublishedPort[], baseUrl: string): string {
  const lines = ports.map(
    (one) => `Port ${one.port} (${one.access}, until ${one.expiresAt}): ${previewUrls(one, baseUrl).openUrl}`,
  )
  return lines.join('\n') || 'No port is published.'
}
