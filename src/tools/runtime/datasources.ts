import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { assess } from '../../core/runtime/health.ts'
import type { Runtime } from '../../core/runtime/runtime.ts'
import { type RuntimeTool, runtimeTool } from './runtime-tool.ts'

/** The only datasource: keys, runs, threads and the audit log. */
const metadata = 'metadata'

const dsn = { dsn: Type.String({ maxLength: 64, description: 'Name of the datasource, of datasource_get_names.' }) }

function requireKnown(name: string): void {
  if (name !== metadata)
    throw new Refusal('name_unknown', { what: `The datasource ${name}`, tool: 'datasource_get_names' })
}

async function describe({ store }: Runtime): Promise<object> {
  const { databaseBytes, walBytes, freeBytes } = await store.size()
  return {
    name: metadata,
    driver: 'sqlite',
    content: 'Keys, runs, threads, usage and the audit log.',
    problem: store.diskProblem ?? null,
    ...{ database_bytes: databaseBytes, wal_bytes: walBytes, free_bytes: freeBytes },
  }
}

/** Tools for the database. */
export const datasourceTools: readonly RuntimeTool[] = [
  runtimeTool({
    name: 'datasource_get_all',
    title: 'Datasources',
    description: 'The database with its size, the size of its write-ahead log, and whether it can be written.',
    run: async (runtime) => ({ datasources: [await describe(runtime)] }),
  }),
  runtimeTool({
    name: 'datasource_get_names',
    title: 'Names of datasources',
    description: 'The names of the datasources.',
    run: () => ({ names: [metadata] }),
  }),
  runtimeTool({
    name: 'datasource_get',
    title: 'One datasource',
    description: 'Size and state of one datasource.',
    input: dsn,
    run: (runtime, { dsn: name }) => {
      requireKnown(name)
      return describe(runtime)
    },
  }),
  runtimeTool({
    name: 'datasource_has',
    title: 'Look up a datasource',
    description: 'Whether there is a datasource of this name.',
    input: dsn,
    run: (_, { dsn: name }) => ({ has: name === metadata }),
  }),
  runtimeTool({
    name: 'datasource_get_config',
    title: 'How a datasource is opened',
    description: 'Driver and options of one datasource. It has no credentials.',
    input: dsn,
    run: (_, { dsn: name }) => {
      requireKnown(name)
      return { driver: 'sqlite', journal_mode: 'wal', synchronous: 'normal', secure_delete: true, connections: 1 }
    },
  }),
  runtimeTool({
    name: 'datasource_get_pool_metrics',
    title: 'Statements of a datasource',
    description: 'Number and duration of the statements of one datasource. It has one connection and no pool.',
    input: dsn,
    run: ({ metrics }, { dsn: name }) => {
      requireKnown(name)
      return { connections: 1, ...metrics.recent.queries.stats }
    },
  }),
  runtimeTool({
    name: 'datasource_test',
    title: 'Test a datasource',
    description: 'Reads from one datasource and returns how long it took, in milliseconds.',
    input: dsn,
    run: async ({ store }, { dsn: name }) => {
      requireKnown(name)
      const startedMs = performance.now()
      await store.size()
      return { ok: store.diskProblem === undefined, ms: Math.round((performance.now() - startedMs) * 100) / 100 }
    },
  }),
  runtimeTool({
    name: 'datasource_get_health',
    title: 'Health of the database',
    description: 'Issues of the database, with suggested actions.',
    run: async (runtime) => assess('datasources', await runtime.figures()),
  }),
]
