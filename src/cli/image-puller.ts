import type { Command } from 'commander'
import { AllowedDestinations } from '../outbound/destination.ts'
import { Outbound } from '../outbound/outbound.ts'
import { RegistryClient, reasonOf } from '../registry/client.ts'
import { parseReference, sourcesOf } from '../registry/reference.ts'
import type { PullerAnswer, PullerRequest } from '../runner/images/puller-messages.ts'
import { encodeMessage, MessageReader } from '../runner/protocol/wire.ts'
import type { Cli } from './command.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'

/** Started by the runner as a user of its own: it reads from registries, and neither writes files nor has privileges. */
export function register(program: Command, { io, exit }: Cli): void {
  program.command('image-puller', { hidden: true }).action(async () => exit(await pull(io)))
}

async function pull(io: ProcessIo): Promise<number> {
  const reader = new MessageReader()
  const send = async (answer: PullerAnswer, payload: Uint8Array = new Uint8Array()) => {
    if (io.stdout.write(encodeMessage(answer, payload))) return
    await new Promise((resolve) => io.stdout.once('drain', resolve))
  }
  let client: RegistryClient | undefined
  for await (const chunk of io.stdin) {
    for (const { header } of reader.push(chunk as Buffer)) {
      const request = header as PullerRequest
      if (request.type === 'open') client = open(request)
      else if (client !== undefined) await answer(client, request, send)
    }
  }
  return exitCodes.ok
}

function open({ name, registries, allow }: Extract<PullerRequest, { type: 'open' }>): RegistryClient {
  const reference = parseReference(name)
  const sources = sourcesOf(reference.registry, registries)
  // The operator has named these hosts, so they need not be public.
  const configured = Object.hasOwn(registries, reference.registry)
  const hosts = sources.map(({ base }) => new URL(base).hostname.replace(/^\[(.*)\]$/, '$1'))
  const outbound = new Outbound(new AllowedDestinations([...allow, ...(configured ? hosts : [])]))
  return new RegistryClient(outbound.agent(), reference, sources)
}

async function answer(
  client: RegistryClient,
  request: Exclude<PullerRequest, { type: 'open' }>,
  send: (answer: PullerAnswer, payload?: Uint8Array) => Promise<void>,
): Promise<void> {
  try {
    if (request.type === 'manifest') await send({ type: 'bytes' }, await client.manifest(request.version))
    else for await (const piece of client.blob(request.digest, request.offset)) await send({ type: 'bytes' }, piece)
    await send({ type: 'end' })
  } catch (error) {
    await send({ type: 'failed', problem: reasonOf(error) })
  }
}
