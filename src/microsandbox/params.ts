import { toLanguage } from '../base/run.ts'
import type { Caller } from '../core/caller.ts'
import { checkSandboxName, type SandboxRef } from '../core/sandboxes/names.ts'
import type { SandboxRequest } from '../core/sandboxes/settings.ts'
import { isObject, own, type Params } from '../mcp/json-rpc/message.ts'
import { toPorts, toSandboxRequest } from '../tools/sandbox/sandbox-start.ts'
import { invalidParams, RpcError, rpcCodes } from './errors.ts'

/** BOUNDARY: readers of the parameters of a call. Each throws a refusal that names the parameter. */

export function textOf(params: Params, field: string): string | undefined {
  const value = own(params, field) ?? undefined
  if (value === undefined || typeof value === 'string') return value
  throw invalidParams(field, 'must be a string')
}

function requiredText(params: Params, field: string): string {
  const value = textOf(params, field)
  if (value === undefined) throw invalidParams(field, 'is required')
  return value
}

function textsOf(params: Params, field: string): string[] | undefined {
  const value = own(params, field) ?? undefined
  if (value === undefined) return undefined
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return value
  throw invalidParams(field, 'must be a list of strings')
}

function numberOf(params: Params, field: string): number | undefined {
  const value = own(params, field) ?? undefined
  if (value === undefined || (typeof value === 'number' && value > 0)) return value
  throw invalidParams(field, 'must be a number greater than 0')
}

/** Returns the timeout of a call, which clients send in seconds. */
export function timeoutMsOf(params: Params): number | undefined {
  const seconds = numberOf(params, 'timeout')
  return seconds === undefined ? undefined : seconds * 1_000
}

/** Returns the sandbox that a call names. The page of seed clients shows it as `name` where it starts one. */
export function refOf(params: Params): SandboxRef {
  const name = textOf(params, 'sandbox') ?? requiredText(params, own(params, 'name') === undefined ? 'sandbox' : 'name')
  checkSandboxName('Sandbox name', name)
  return { name, namespace: namespaceOf(params) }
}

export function namespaceOf(params: Params): string | undefined {
  const namespace = textOf(params, 'namespace')
  if (namespace !== undefined && namespace !== '*') checkSandboxName('Namespace', namespace)
  return namespace
}

/** Returns the settings of a start. Those that have no meaning here, such as `depends_on`, are ignored. */
export function startRequestOf(params: Params): SandboxRequest {
  const config = own(params, 'config') ?? {}
  if (!isObject(config)) throw invalidParams('config', 'must be an object')
  const image = textOf(config, 'image') ?? textOf(params, 'image')
  const memory = numberOf(config, 'memory')
  const cpus = numberOf(config, 'cpus')
  const workdir = textOf(config, 'workdir')
  return toSandboxRequest({
    ...(image !== undefined && { image }),
    ...(memory !== undefined && { memory: Math.ceil(memory) }),
    ...(cpus !== undefined && { cpus }),
    ...(workdir !== undefined && { workdir }),
    envs: textsOf(config, 'envs') ?? [],
    // "host:guest": directories of the machine cannot be mounted; volumes of the profile always are.
    volumes: (textsOf(config, 'volumes') ?? []).filter((volume) => !volume.includes(':')),
  })
}

/** Returns the ports that a start publishes. @throws Refusal invalid_argument. */
export function portsOf(params: Params): number[] {
  const config = own(params, 'config') ?? {}
  const ports = isObject(config) ? (own(config, 'ports') ?? []) : []
  const isList = Array.isArray(ports) && ports.every((port) => typeof port === 'string' || typeof port === 'number')
  if (!isList) throw invalidParams('ports', 'must be a list of strings')
  return toPorts(ports)
}

/** Returns the code of a call. @throws RpcError for a language that no interpreter has. */
export function codeRequestOf({ profile }: Caller, params: Params) {
  const named = requiredText(params, 'language')
  const language = profile.languages.find((known) => known === toLanguage(named))
  if (language === undefined)
    throw new RpcError(400, rpcCodes.invalidRequest, `Unsupported language: ${named.slice(0, 64)}`)
  return { language, code: requiredText(params, 'code'), timeoutMs: timeoutMsOf(params) }
}

export function commandRequestOf(params: Params) {
  return {
    command: requiredText(params, 'command'),
    args: textsOf(params, 'args') ?? [],
    timeoutMs: timeoutMsOf(params),
  }
}
