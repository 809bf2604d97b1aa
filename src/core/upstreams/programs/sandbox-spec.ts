import { randomBytes } from 'node:crypto'
import type { JailNetwork } from '../../../base/network.ts'
import { placeholderPrefix, secretPlaces } from '../../../base/network-secrets.ts'
import type { SandboxSpec } from '../../../base/sandbox.ts'
import type { UpstreamSandboxRow } from '../../../store/upstream-sandboxes.ts'
import type { UpstreamCredential } from '../secrets.ts'
import type { UpstreamTarget } from '../upstreams.ts'
import { networkOf, programOf, type UpstreamProgram } from './program.ts'

const mib = 1024 * 1024
const pidsMax = 512
const openFilesMax = 4_096
const filesMax = 200_000
const tmpBytes = 64 * mib

/** A target whose transport is `stdio`, with its parsed program. */
export interface ProgramTarget extends Omit<UpstreamTarget, 'program'> {
  program: UpstreamProgram
  /** As its row has it. */
  programText: string
}

/** @throws Error if the transport is not `stdio`. */
export function toProgramTarget(target: UpstreamTarget): ProgramTarget {
  const program = programOf(target)
  if (program === null || target.program === null) throw new Error(`${target.name} is no program`)
  return { ...target, program, programText: target.program }
}

/** What the processes of one sandbox have as their credential. */
export interface OpenedCredential {
  /** Variables of each process. */
  env: Readonly<Record<string, string>>
  network: JailNetwork | undefined
}

/**
 * Returns the credential of a sandbox. If the program names servers that receive it, the program gets a placeholder, and
 * the broker replaces it in requests to these servers; otherwise the value is in its environment.
 * @param value of the credential; `undefined` if the upstream has none.
 * @param packages network of package managers.
 */
export function openCredential(
  { program, secrets: { credential, env = {} } }: ProgramTarget,
  value: string | undefined,
  packages: JailNetwork,
): OpenedCredential {
  const network = networkOf(program, packages)
  if (credential === null || value === undefined) return { env, network }
  const set = (shown: string) => ({ ...env, [credential.name]: credential.prefix + shown })
  if (network === undefined || program.credentialHosts.length === 0) return { env: set(value), network }
  const placeholder = placeholderPrefix + randomBytes(16).toString('hex')
  const secret = {
    ...{ name: secretName(credential), placeholder, value },
    ...{ hosts: program.credentialHosts, places: secretPlaces },
  }
  return { env: set(placeholder), network: { ...network, secrets: [secret] } }
}

/** Secrets have names of capital letters; variables need not. */
const secretName = ({ name }: UpstreamCredential): string =>
  /^[A-Z][A-Z0-9_]*$/.test(name) ? name : `CREDENTIAL_${name.toUpperCase().replaceAll(/[^A-Z0-9_]/g, '_')}`

/** Returns what the runner needs to start the sandbox of a program. @param network that of package managers while it is installed. */
export function toProgramSpec(
  { id, orgId, upstreamId, quotaBytes }: UpstreamSandboxRow,
  { image, memoryBytes, cpus }: UpstreamProgram,
  network: JailNetwork | undefined,
): SandboxSpec {
  return {
    ...{ sandboxId: id, orgId, keyId: upstreamId, env: {}, workdir: '/workspace', user: 'root' },
    ...(image !== null && { image }),
    limits: { memoryBytes, cpus, pids: pidsMax, openFiles: openFilesMax, fileBytes: quotaBytes, tmpBytes },
    disk: { bytes: quotaBytes, inodes: filesMax },
    ...(network && { network }),
  }
}
