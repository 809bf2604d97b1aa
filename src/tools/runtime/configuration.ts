import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { Runtime, SettingView } from '../../core/runtime/runtime.ts'
import { logLevels } from '../../observe/log.ts'
import { limitOf, type RuntimeTool, runtimeTool } from './runtime-tool.ts'

const minuteMs = 60_000
const debugMinutesMax = 24 * 60

const settingNamed = ({ facts }: Runtime, path: string): SettingView => {
  const setting = facts.settings.find(({ name }) => name === path)
  if (setting === undefined)
    throw new Refusal('name_unknown', { what: `The setting ${path.slice(0, 128)}`, tool: 'runtime_get_config' })
  return setting
}

const sameValue = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b)

/** Tools for the server as a whole: version, configuration, its tools, and what it can run. */
export const configurationTools: readonly RuntimeTool[] = [
  runtimeTool({
    name: 'runtime_get_info',
    title: 'About this server',
    description: 'Version, versions of Node.js, operating system, process ID, start time, uptime and languages.',
    run: async (runtime) => {
      return {
        product: 'glovebox',
        version: runtime.facts.version,
        node: process.versions.node,
        v8: process.versions.v8,
        platform: `${process.platform} ${process.arch}`,
        pid: process.pid,
        started_at: new Date(performance.timeOrigin).toISOString(),
        uptime_seconds: Math.round(process.uptime()),
        ready: (await runtime.figures()).notReady === null,
        runner: runtime.runner.identity ?? null,
        interpreters: runtime.runner.software.interpreters,
      }
    },
  }),
  runtimeTool({
    name: 'runtime_get_license_status',
    title: 'License',
    description: 'The license of the product, which needs no activation.',
    run: () => ({ license: 'Apache-2.0', valid: true, expires_at: null }),
  }),
  runtimeTool({
    name: 'runtime_get_config',
    title: 'Configuration',
    description: 'Every setting with its value in effect and where it comes from. Secrets and variables are hidden.',
    run: ({ facts }) => ({ settings: facts.settings.map(({ name, value, source }) => ({ name, value, source })) }),
  }),
  runtimeTool({
    name: 'runtime_get_config_value',
    title: 'One setting',
    description: 'Value, default, source and meaning of one setting.',
    input: { path: Type.String({ maxLength: 128, description: 'Name of the setting, such as runs_max.' }) },
    run: (runtime, { path }) => settingNamed(runtime, path),
  }),
  runtimeTool({
    name: 'runtime_config_diff',
    title: 'Changed settings',
    description: 'The settings whose value differs from the default, with both and their source.',
    run: ({ facts }) => ({
      changed: facts.settings.filter(
        (setting) => setting.source !== 'default' && !sameValue(setting.value, setting.default),
      ),
    }),
  }),
  runtimeTool({
    name: 'runtime_get_bif_summary',
    title: 'Tools by toolset',
    description: 'Number and names of the tools of this server, by toolset.',
    run: ({ tools }) => {
      const byToolset = [...Map.groupBy(tools, ({ toolset }) => toolset)]
      const names = byToolset.map(([toolset, members]) => [toolset, members.map(({ name }) => name)])
      return { total: tools.length, toolsets: Object.fromEntries(names) }
    },
  }),
  runtimeTool({
    name: 'runtime_get_bif_info',
    title: 'One tool',
    description: 'Description, schema and annotations of one tool of this server.',
    input: { name: Type.String({ maxLength: 128, description: 'Name of the tool.' }) },
    run: ({ tools }, { name }) => {
      const tool = tools.find((one) => one.name === name)
      if (tool === undefined)
        throw new Refusal('name_unknown', { what: `The tool ${name}`, tool: 'runtime_get_bif_summary' })
      return tool
    },
  }),
  runtimeTool({
    name: 'runtime_search_bifs',
    title: 'Search tools',
    description: 'Tools whose name or description contains a word.',
    input: {
      keyword: Type.String({ minLength: 1, maxLength: 128, description: 'A part of the name or description.' }),
      limit: limitOf(20),
    },
    run: ({ tools }, { keyword, limit = 20 }) => {
      const wanted = keyword.toLowerCase()
      const found = tools.filter((tool) => `${tool.name} ${tool.description}`.toLowerCase().includes(wanted))
      return { tools: found.slice(0, limit).map(({ name, toolset, description }) => ({ name, toolset, description })) }
    },
  }),
  runtimeTool({
    name: 'runtime_get_component_summary',
    title: 'Languages and programs',
    description: 'Interpreters, programs and number of Python packages that runs find.',
    run: ({ runner: { software } }) => ({
      interpreters: software.interpreters,
      programs: software.programs,
      python_packages: software.pythonPackagesTotal,
    }),
  }),
  runtimeTool({
    name: 'runtime_get_component_info',
    title: 'One language',
    description: 'Version of one interpreter, and for Python the listed packages.',
    input: { name: Type.String({ maxLength: 64, description: 'Name of the language, such as python.' }) },
    run: ({ runner: { software } }, { name }) => {
      const interpreter = software.interpreters.find(({ language }) => language === name)
      if (interpreter === undefined)
        throw new Refusal('name_unknown', { what: `The language ${name}`, tool: 'runtime_get_component_summary' })
      return { ...interpreter, ...(name === 'python' && { packages: software.pythonPackages }) }
    },
  }),
  runtimeTool({
    name: 'runtime_search_components',
    title: 'Search packages and programs',
    description: 'Interpreters, programs and listed Python packages whose name contains a word.',
    input: { keyword: Type.String({ minLength: 1, maxLength: 128, description: 'A part of the name.' }) },
    run: ({ runner: { software } }, { keyword }) => {
      const has = (name: string) => name.toLowerCase().includes(keyword.toLowerCase())
      return {
        interpreters: software.interpreters.filter(({ language }) => has(language)),
        programs: software.programs.filter(has),
        python_packages: software.pythonPackages.filter(({ name }) => has(name)),
      }
    },
  }),
  runtimeTool({
    name: 'runtime_get_global_services',
    title: 'Parts of the server',
    description: 'The processes, the database, background jobs and caches, and whether each works.',
    run: async (runtime) => {
      const { notReady, runner, database, jobs } = await runtime.figures()
      return {
        front: 'running',
        runner: runner === null ? 'not connected' : (notReady ?? 'running'),
        database: database.problem ?? 'writable',
        jobs: Object.fromEntries(
          Object.entries(jobs).map(([name, job]) => [name, job.isPaused ? 'paused' : (job.lastProblem ?? 'working')]),
        ),
        caches: Object.keys(runtime.caches),
      }
    },
  }),
  runtimeTool({
    name: 'runtime_toggle_debug_mode',
    title: 'Change the log level',
    description: 'Changes the log level of both processes for a time, after which the configured level returns.',
    effect: 'write',
    input: {
      level: Type.Optional(Type.Enum(logLevels, { description: 'New level; debug by default.' })),
      minutes: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: debugMinutesMax,
          description: 'Time until the level returns; 10 by default.',
        }),
      ),
    },
    run: (runtime, { level = 'debug', minutes = 10 }) =>
      runtime.inspect('log_level', undefined, { setLevel: level, revertMs: minutes * minuteMs }),
  }),
  runtimeTool({
    name: 'runtime_clear_system_cache',
    title: 'Clear caches',
    description: 'Clears every cache of the front. Entries are read again when they are needed.',
    effect: 'write',
    run: ({ caches }) => {
      for (const cache of Object.values(caches)) cache.clear()
      return { cleared: Object.keys(caches) }
    },
  }),
]
