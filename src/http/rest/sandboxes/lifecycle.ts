import { Refusal, type RefusalCode } from '../../../base/errors.ts'
import { toPageRequest } from '../../../core/paging.ts'
import type { Sandboxes } from '../../../core/sandboxes/sandboxes.ts'
import type { KeyCall, Operation } from '../../operation.ts'
import { created, keyOperation, noContent, ok, okPage } from '../../operation.ts'
import { pageParameters } from '../../query.ts'
import { listOf } from '../../schemas.ts'
import {
  CreateBody,
  ExtendBody,
  Metrics,
  metricsOnTheWire,
  namespaceParameter,
  refOf,
  Sandbox,
  sandboxGroup,
  sandboxRefusals,
  sandboxStates,
} from './schemas.ts'

const starts: readonly RefusalCode[] = ['limit_reached', 'sandbox_failed', 'image_unknown', 'storage_full']
const path = '/v1/sandboxes/{name}'

const listParameters = {
  ...pageParameters,
  namespace: 'Sandboxes of this namespace; all namespaces of the key if it is absent.',
  state: 'States, separated by commas.',
}

const ms = (seconds: number | undefined) => (seconds === undefined ? undefined : Math.round(seconds * 1_000))

function toQuery({ namespace, state, ...page }: Readonly<Record<string, string>>): Parameters<Sandboxes['list']>[1] {
  const states = state?.split(',').map((text) => {
    const known = sandboxStates.find((one) => one === text.trim())
    if (known !== undefined) return known
    const problem = `must contain ${sandboxStates.join(', ')}; ${JSON.stringify(text.slice(0, 32))} is not a state`
    throw new Refusal('invalid_argument', { field: 'state', problem })
  })
  return { ...toPageRequest(page), namespace, states }
}

/** An operation that changes the state and returns the sandbox. */
const change = (
  verb: 'start' | 'stop' | 'restart' | 'pause' | 'resume',
  summary: string,
  refusals: readonly RefusalCode[] = [],
) =>
  keyOperation({
    id: `${verb}Sandbox`,
    method: 'POST',
    path: `${path}/${verb}`,
    capability: 'sandboxes.write',
    group: sandboxGroup,
    summary,
    query: namespaceParameter,
    answers: { 200: Sandbox },
    refusals: [...sandboxRefusals, ...refusals],
    handle: async ({ core, caller, params, query }: KeyCall<string, undefined>) =>
      ok(await core.sandboxes[verb](caller, refOf(params as { name: string }, query))),
  })

export const lifecycleOperations: readonly Operation[] = [
  keyOperation({
    id: 'createSandbox',
    method: 'POST',
    path: '/v1/sandboxes',
    capability: 'sandboxes.write',
    group: sandboxGroup,
    summary: 'Create a sandbox and start it',
    body: CreateBody,
    answers: { 201: Sandbox },
    refusals: ['invalid_argument', 'namespace_denied', 'sandbox_exists', 'sandboxes_full', ...starts, 'unavailable'],
    handle: async ({ core, caller, body }) => {
      const { name, namespace, memory_bytes, cpus, disk_bytes, env_vars, idle_timeout, lifetime, ...rest } = body
      const { on_crash: onCrash, on_end: onEnd, ...same } = rest
      const request = {
        ...{ ...same, onCrash, onEnd, cpus, memoryBytes: memory_bytes, diskBytes: disk_bytes, env: env_vars },
        ...{ idleTimeoutMs: ms(idle_timeout), lifetimeMs: ms(lifetime) },
      }
      const ref = { ...(name !== undefined && { name }), namespace }
      return created(await core.sandboxes.create(caller, ref, request))
    },
  }),
  keyOperation({
    id: 'listSandboxes',
    method: 'GET',
    path: '/v1/sandboxes',
    capability: 'sandboxes.read',
    group: sandboxGroup,
    summary: 'List sandboxes by namespace and name',
    query: listParameters,
    answers: { 200: listOf(Sandbox) },
    refusals: ['invalid_argument', 'namespace_denied'],
    handle: async ({ core, caller, query }) => okPage(await core.sandboxes.list(caller, toQuery(query))),
  }),
  keyOperation({
    id: 'getSandbox',
    method: 'GET',
    path,
    capability: 'sandboxes.read',
    group: sandboxGroup,
    summary: 'Get a sandbox with its state and its settings',
    query: namespaceParameter,
    answers: { 200: Sandbox },
    refusals: sandboxRefusals,
    handle: async ({ core, caller, params, query }) => ok(await core.sandboxes.get(caller, refOf(params, query))),
  }),
  keyOperation({
    id: 'deleteSandbox',
    method: 'DELETE',
    path,
    capability: 'sandboxes.write',
    group: sandboxGroup,
    summary: 'Stop a sandbox and delete it with its disk',
    query: namespaceParameter,
    answers: { 204: null },
    refusals: sandboxRefusals,
    handle: async ({ core, caller, params, query }) => {
      await core.sandboxes.remove(caller, refOf(params, query))
      return noContent
    },
  }),
  change('start', 'Start a stopped or crashed sandbox with its disk, or resume a paused one', starts),
  change('stop', 'Stop a sandbox and keep its disk'),
  change('restart', 'Stop a sandbox and start it again with its disk', starts),
  change('pause', 'Freeze every process of a sandbox, so that it uses no processor time'),
  change('resume', 'Continue a paused sandbox'),
  keyOperation({
    id: 'extendSandbox',
    method: 'POST',
    path: `${path}/extend`,
    capability: 'sandboxes.write',
    group: sandboxGroup,
    summary: 'Set the idle timeout and the lifetime of a sandbox, which counts from now',
    query: namespaceParameter,
    body: ExtendBody,
    answers: { 200: Sandbox },
    refusals: sandboxRefusals,
    handle: async ({ core, caller, params, query, body }) => {
      const times = { idleTimeoutMs: ms(body.idle_timeout), lifetimeMs: ms(body.lifetime) }
      return ok(await core.sandboxes.extend(caller, refOf(params, query), times))
    },
  }),
  keyOperation({
    id: 'getSandboxMetrics',
    method: 'GET',
    path: `${path}/metrics`,
    capability: 'sandboxes.read',
    group: sandboxGroup,
    summary: 'Get the processor time, memory, disk and network figures of a sandbox',
    query: namespaceParameter,
    answers: { 200: Metrics },
    refusals: sandboxRefusals,
    handle: async ({ core, caller, params, query }) =>
      ok(metricsOnTheWire(await core.sandboxes.metrics(caller, refOf(params, query)))),
  }),
  keyOperation({
    id: 'listSandboxMetrics',
    method: 'GET',
    path: '/v1/metrics/sandboxes',
    capability: 'sandboxes.read',
    group: sandboxGroup,
    summary: 'Get the figures of all sandboxes',
    query: listParameters,
    answers: { 200: listOf(Metrics) },
    refusals: ['invalid_argument', 'namespace_denied', 'unavailable'],
    handle: async ({ core, caller, query }) => {
      const { items, nextCursor } = await core.sandboxes.metricsOfAll(caller, toQuery(query))
      return okPage({ items: items.map(metricsOnTheWire), nextCursor })
    },
  }),
]
