import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { SandboxFigures, SandboxStatus } from '../../base/sandbox.ts'
import { assess } from '../../core/runtime/health.ts'
import { type Runtime, recentMs } from '../../core/runtime/runtime.ts'
import { counted } from '../../observe/recent-runs.ts'
import { limitOf, type RuntimeTool, runtimeTool } from './runtime-tool.ts'

const appName = {
  appName: Type.String({
    maxLength: 128,
    description: 'ID of an active run (app_get_names) or of a named sandbox (app_get_sandboxes).',
  }),
}

const sandboxName = {
  appName: Type.String({ maxLength: 128, description: 'ID of a named sandbox, of app_get_sandboxes.' }),
}

/** A named sandbox in any state. */
type StoredSandbox = NonNullable<Awaited<ReturnType<Runtime['sandboxControl']['find']>>>

/** A run that has not ended. */
type ActiveRun = Awaited<ReturnType<Runtime['activeRuns']>>[number]

const toApp = ({ runId, orgId, keyId, state, detached }: ActiveRun) => ({
  ...{ name: runId, org_id: orgId, key_id: keyId, state, detached },
})

const toSandbox = (
  { sandboxId, orgId, state, startedAt }: SandboxStatus,
  row: { name: string; namespace: string } | undefined,
  figures: SandboxFigures | null,
) => ({
  ...{ id: sandboxId, name: row?.name ?? null, namespace: row?.namespace ?? null, org_id: orgId, state: state.kind },
  started_at: new Date(startedAt).toISOString(),
  memory_bytes: figures?.memoryBytes ?? null,
  memory_limit_bytes: figures?.memoryLimitBytes ?? null,
  cpu_seconds: figures?.cpuSeconds ?? null,
  disk_bytes: figures?.diskBytes ?? null,
  processes: figures?.processes ?? null,
})

const runNamed = async (runtime: Runtime, name: string): Promise<ActiveRun | undefined> =>
  (await runtime.activeRuns()).find(({ runId }) => runId === name)

/** @throws Refusal `name_unknown` for an ID of neither an active run nor a sandbox. */
async function sandboxNamed(runtime: Runtime, name: string): Promise<StoredSandbox> {
  const row = await runtime.sandboxControl.find(name)
  if (row === undefined) {
    const details = { what: `The active run or named sandbox ${name}`, tool: 'app_get_names or app_get_sandboxes' }
    throw new Refusal('name_unknown', details)
  }
  return row
}

const toStoredSandbox = ({ id, name, namespace, orgId, keyId, state, reason, startedAt }: StoredSandbox) => ({
  ...{ kind: 'sandbox', id, name, namespace, org_id: orgId, key_id: keyId, state, reason, started_at: startedAt },
})

/** Tools for what runs in the sandboxes now. */
export const appTools: readonly RuntimeTool[] = [
  runtimeTool({
    name: 'app_get_all',
    title: 'Active runs',
    description: 'Every run that waits or executes now, of all organizations, with its state.',
    input: { limit: limitOf(100) },
    run: async (runtime, { limit = 100 }) => {
      const runs = await runtime.activeRuns()
      return { total: runs.length, apps: runs.slice(0, limit).map(toApp) }
    },
  }),
  runtimeTool({
    name: 'app_get_names',
    title: 'IDs of active runs',
    description: 'The IDs of all runs that wait or execute now.',
    input: { limit: limitOf(500, 5_000) },
    run: async (runtime, { limit = 500 }) => ({
      names: (await runtime.activeRuns()).slice(0, limit).map(({ runId }) => runId),
    }),
  }),
  runtimeTool({
    name: 'app_get',
    title: 'One active run or sandbox',
    description: 'Organization, key and state of one active run, or of one named sandbox in any state.',
    input: appName,
    run: async (runtime, { appName: name }) => {
      const run = await runNamed(runtime, name)
      return run ? { kind: 'run', ...toApp(run) } : toStoredSandbox(await sandboxNamed(runtime, name))
    },
  }),
  runtimeTool({
    name: 'app_has',
    title: 'Look up an active run or a sandbox',
    description: 'Whether a run of this ID is active, or a named sandbox of this ID exists.',
    input: appName,
    run: async (runtime, { appName: name }) => ({
      has: (await runNamed(runtime, name)) !== undefined || (await runtime.sandboxControl.find(name)) !== undefined,
    }),
  }),
  runtimeTool({
    name: 'app_get_summary',
    title: 'Runs by state and organization',
    description: 'Active runs by state and by organization, and the latest runs by ending and language.',
    run: async (runtime) => {
      const runs = await runtime.activeRuns()
      const byOrg = Object.entries(counted(runs.map(({ orgId }) => orgId))).sort(([, a], [, b]) => b - a)
      return {
        active: runs.length,
        by_state: counted(runs.map(({ state }) => state)),
        by_org: Object.fromEntries(byOrg.slice(0, 50)),
        sandboxes: counted((await runtime.sandboxes()).map(({ state }) => state.kind)),
        latest: runtime.metrics.recent.runs.figures(recentMs),
      }
    },
  }),
  runtimeTool({
    name: 'app_get_sandboxes',
    title: 'Named sandboxes',
    description:
      'Every named sandbox that is not stopped, of all organizations: state, memory, CPU time, disk, processes.',
    input: { limit: limitOf(100) },
    run: async (runtime, { limit = 100 }) => {
      const sandboxes = await runtime.sandboxes()
      const shown = sandboxes.slice(0, limit)
      const figures = await runtime.runner.sandboxes.figures(shown.map(({ sandboxId }) => sandboxId))
      const rows = await Promise.all(shown.map(({ sandboxId }) => runtime.store.sandboxes.byId(sandboxId)))
      return {
        total: sandboxes.length,
        sandboxes: shown.map((sandbox, at) => toSandbox(sandbox, rows[at], figures[at] ?? null)),
      }
    },
  }),
  runtimeTool({
    name: 'app_get_health',
    title: 'Health of runs',
    description: 'Rates of runs that fail or use all of their memory, and the isolation of the machine.',
    run: async (runtime) => assess('sandboxes', await runtime.figures()),
  }),
  runtimeTool({
    name: 'app_stop',
    title: 'Cancel a run or stop a sandbox',
    description:
      'Cancels one active run of any organization, which ends as cancelled, or stops one named sandbox, whose disk is kept.',
    effect: 'write',
    input: appName,
    run: async (runtime, { appName: name }, { id }) => {
      if (await runNamed(runtime, name)) await runtime.runner.cancel(name, 'cancelled')
      else await runtime.sandboxControl.stop((await sandboxNamed(runtime, name)).id, id)
      return { stopped: name }
    },
  }),
  runtimeTool({
    name: 'app_restart',
    title: 'Restart a sandbox',
    description:
      'Stops one named sandbox and starts it again with its disk. Its processes end, and its key must still be valid.',
    effect: 'write',
    input: sandboxName,
    run: async (runtime, { appName: name }, { id }) => {
      await runtime.sandboxControl.restart((await sandboxNamed(runtime, name)).id, id)
      return { restarted: name }
    },
  }),
  runtimeTool({
    name: 'app_sessions_clear',
    title: 'End the contexts of a sandbox',
    description:
      'Ends the interpreters of one named sandbox that keep the state of code. Files and other processes stay.',
    effect: 'write',
    input: sandboxName,
    run: async (runtime, { appName: name }) => ({
      ended: await runtime.sandboxControl.endContexts((await sandboxNamed(runtime, name)).id),
    }),
  }),
]
