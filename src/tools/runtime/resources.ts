import { readFileSync } from 'node:fs'
import type { Runtime } from '../../core/runtime/runtime.ts'
import { recentMs } from '../../core/runtime/runtime.ts'
import { limitsOnTheWire } from '../limits.ts'
import { findRuntimeTool, runtimeTools } from './tools.ts'

interface RuntimeResource {
  uri: string
  name: string
  title: string
  description: string
  mimeType: string
  read(runtime: Runtime): Promise<string>
}

const json = (value: unknown): string => JSON.stringify(value, null, 2)

/** The page ships with the product. */
const promisesPage = new URL('../../../docs/promises.md', import.meta.url)

const resources: readonly RuntimeResource[] = [
  {
    uri: 'glovebox://runtime/health',
    name: 'health',
    title: 'Health of the server',
    description: 'Status, score and issues, as system_get_health returns them.',
    mimeType: 'application/json',
    read: async (runtime) => json(await runtime.health()),
  },
  {
    uri: 'glovebox://runtime/config',
    name: 'config',
    title: 'Configuration',
    description: 'Every setting with its value, default and source. Secrets are hidden.',
    mimeType: 'application/json',
    read: async ({ facts }) => json(facts.settings),
  },
  {
    uri: 'glovebox://runtime/limits',
    name: 'limits',
    title: 'Limits of the default profile',
    description: 'Memory, processors, files and output that a run of the default profile may use.',
    mimeType: 'application/json',
    read: async ({ profile }) => json(limitsOnTheWire(profile.limits)),
  },
  {
    uri: 'glovebox://runtime/promises',
    name: 'promises',
    title: 'Security promises',
    description: 'What the server promises to operators and tenants, and the test of each promise.',
    mimeType: 'text/markdown',
    read: async () => readFileSync(promisesPage, 'utf8'),
  },
  {
    uri: 'glovebox://runtime/runs',
    name: 'runs',
    title: 'Latest runs',
    description: 'Figures of the runs of the last ten minutes, by ending and language, and the active runs by state.',
    mimeType: 'application/json',
    read: async (runtime) =>
      json({ latest: runtime.metrics.recent.runs.figures(recentMs), active: (await runtime.engine())?.runs ?? null }),
  },
  {
    uri: 'glovebox://runtime/metrics',
    name: 'metrics',
    title: 'Metrics',
    description: 'All metrics in the Prometheus text format.',
    mimeType: 'text/plain',
    read: (runtime) => runtime.metricsText(),
  },
]

/** Resources that a URI names by its form. */
export const resourceTemplates = [
  {
    uriTemplate: 'glovebox://runtime/tools/{name}',
    name: 'tool',
    title: 'Schema of a tool',
    description: 'Description, input schema and annotations of one runtime tool.',
    mimeType: 'application/json',
  },
  {
    uriTemplate: 'glovebox://runtime/config/{name}',
    name: 'setting',
    title: 'One setting',
    description: 'Value, default, source and meaning of one setting. Secrets are hidden.',
    mimeType: 'application/json',
  },
] as const

/** Lists the resources and the schema of each tool. */
export const resourceListings = (): object[] => [
  ...resources.map(({ read: _, ...listing }) => listing),
  ...runtimeTools.map(({ name, listing }) => ({
    uri: `glovebox://runtime/tools/${name}`,
    name: `tool:${name}`,
    title: listing.title,
    description: `Schema of the tool ${name}.`,
    mimeType: 'application/json',
  })),
]

/** Returns what is at a URI; `undefined` if nothing is. */
export async function readResource(
  runtime: Runtime,
  uri: string,
): Promise<{ uri: string; mimeType: string; text: string } | undefined> {
  const resource = resources.find((one) => one.uri === uri)
  if (resource) return { uri, mimeType: resource.mimeType, text: await resource.read(runtime) }
  const [, kind, name = ''] = /^glovebox:\/\/runtime\/(tools|config)\/([a-z0-9_]{1,64})$/.exec(uri) ?? []
  const found =
    kind === 'tools'
      ? findRuntimeTool(name)?.listing
      : kind === 'config'
        ? runtime.facts.settings.find((setting) => setting.name === name)
        : undefined
  return found && { uri, mimeType: 'application/json', text: json(found) }
}
