import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { toolsets } from '../../base/profile.ts'
import { assess } from '../../core/runtime/health.ts'
import type { Runtime } from '../../core/runtime/runtime.ts'
import { type RuntimeTool, runtimeTool } from './runtime-tool.ts'

const moduleName = {
  moduleName: Type.String({ maxLength: 64, description: 'Name of the module, of module_get_names.' }),
}

/** A part that can be present or absent: a toolset, or the driver that creates slots. */
interface Module {
  name: string
  kind: 'toolset' | 'driver'
  enabled: boolean
  details: Record<string, unknown>
}

async function modulesOf(runtime: Runtime): Promise<Module[]> {
  const { profile, tools } = runtime
  const engine = await runtime.engine()
  const ofToolset = (toolset: string) => tools.filter((tool) => tool.toolset === toolset).map(({ name }) => name)
  return [
    ...[...toolsets, 'runtime' as const].map((name) => ({
      name: `toolset:${name}`,
      kind: 'toolset' as const,
      enabled: name === 'runtime' || profile.calls.toolsets.includes(name),
      details: { tools: ofToolset(name) },
    })),
    {
      name: 'driver:oci',
      kind: 'driver',
      enabled: engine !== null,
      details: { runtime: engine?.runtime ?? null, storage: engine?.storage !== null },
    },
  ]
}

async function moduleNamed(runtime: Runtime, name: string): Promise<Module> {
  const found = (await modulesOf(runtime)).find((one) => one.name === name)
  if (found === undefined) throw new Refusal('name_unknown', { what: `The module ${name}`, tool: 'module_get_names' })
  return found
}

/** Tools for the parts that a server can have: toolsets and the driver of the slots. */
export const moduleTools: readonly RuntimeTool[] = [
  runtimeTool({
    name: 'module_get_all',
    title: 'Modules',
    description: 'The toolsets with their tools, and the driver that creates slots.',
    run: async (runtime) => ({ modules: await modulesOf(runtime) }),
  }),
  runtimeTool({
    name: 'module_get_names',
    title: 'Names of modules',
    description: 'The names of the toolsets and drivers.',
    run: async (runtime) => ({ names: (await modulesOf(runtime)).map(({ name }) => name) }),
  }),
  runtimeTool({
    name: 'module_get_info',
    title: 'One module',
    description: 'Whether one module is enabled, and what it contains.',
    input: moduleName,
    run: (runtime, { moduleName: name }) => moduleNamed(runtime, name),
  }),
  runtimeTool({
    name: 'module_has',
    title: 'Look up a module',
    description: 'Whether there is a module of this name.',
    input: moduleName,
    run: async (runtime, { moduleName: name }) => ({
      has: (await modulesOf(runtime)).some((one) => one.name === name),
    }),
  }),
  runtimeTool({
    name: 'module_get_stats',
    title: 'Number of modules',
    description: 'How many modules there are, and how many are enabled.',
    run: async (runtime) => {
      const modules = await modulesOf(runtime)
      return { total: modules.length, enabled: modules.filter(({ enabled }) => enabled).length }
    },
  }),
  runtimeTool({
    name: 'storage_get_health',
    title: 'Health of the disks',
    description: 'Free space of the disks that the server uses, and the places for mounted filesystems.',
    run: async (runtime) => assess('disks', await runtime.figures()),
  }),
]
