import type { Cleanup } from '../../base/cleanup.ts'
import { Refusal } from '../../base/errors.ts'
import type { SandboxSpec } from '../../base/sandbox.ts'
import type { Egress, OpenNetwork, Trust } from '../../egress/client.ts'
import { ownCertificatesPath } from '../../engine/jails/network-env.ts'
import type { SandboxJail } from '../../engine/sandboxes/sandbox-jail.ts'
import { BuiltinRun } from './builtin-run.ts'

/**
 * Returns the network of a sandbox, which is opened with its jail.
 * @param egress absent if the runner has no network.
 * @param undo ends its connections.
 * @throws Refusal unavailable.
 */
export function networkOf(
  { network, orgId, keyId }: SandboxSpec,
  egress: Egress | undefined,
  trust: Trust | undefined,
  undo: Cleanup,
): OpenNetwork | undefined {
  if (network === undefined) return undefined
  const opened = egress?.jail(network, { kind: 'sandbox', orgId, keyId }, trust)
  if (opened === undefined) throw new Refusal('unavailable', { reason: 'the runner has no network' })
  undo.add(async () => void (await opened.close()))
  return opened
}

/** Writes the file of what a sandbox with secrets trusts. It belongs to its root. @throws Refusal when it cannot. */
export async function writeCertificates(jail: SandboxJail, { certificates }: Trust): Promise<void> {
  const argv = [ownCertificatesPath, '644', '', 'parents']
  const run = new BuiltinRun(jail, { argv, env: {}, cwd: '/', user: 'root', builtin: 'write', stdin: true }, argv[0]!)
  await run.write(Buffer.from(certificates))
  run.closeInput()
  await run.done
}

/**
 * Connects to a server on the loopback of a sandbox.
 * @returns a descriptor, which the caller closes.
 * @throws Refusal port_closed when nothing accepts the connection.
 */
export async function connectTo(jail: SandboxJail, port: number): Promise<number> {
  try {
    return await jail.connect(port)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ECONNREFUSED' || code === 'ETIMEDOUT' || code === 'EADDRNOTAVAIL')
      throw new Refusal('port_closed', { port })
    throw error
  }
}
