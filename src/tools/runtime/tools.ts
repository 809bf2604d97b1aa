import { Refusal } from '../../base/errors.ts'
import type { Tool } from '../tool.ts'
import { appTools } from './apps.ts'
import { cacheTools } from './caches.ts'
import { configurationTools } from './configuration.ts'
import { datasourceTools } from './datasources.ts'
import { executorTools } from './executors.ts'
import { loggingTools } from './logging.ts'
import { moduleTools } from './modules.ts'
import { nodeTools } from './node.ts'
import type { RuntimeTool } from './runtime-tool.ts'
import { schedulerTools } from './schedulers.ts'
import { serverTools } from './server.ts'
import { slowCallTools } from './slow-calls.ts'

/** Every tool that looks inside the server, in the order of `tools/list`. */
export const runtimeTools: readonly RuntimeTool[] = [
  ...serverTools,
  ...configurationTools,
  ...nodeTools,
  ...executorTools,
  ...appTools,
  ...schedulerTools,
  ...datasourceTools,
  ...slowCallTools,
  ...cacheTools,
  ...moduleTools,
  ...loggingTools,
]

const byName = new Map(
  runtimeTools.flatMap((tool) => [tool.name, ...tool.aliases].map((name) => [name, tool] as const)),
)

/** Finds a tool by its name or one of its other names. */
export const findRuntimeTool = (name: string): RuntimeTool | undefined => byName.get(name)

/** The same tools as MCP offers them, to callers that authenticated with an admin token. */
export const runtimeToolsOfMcp: readonly Tool[] = runtimeTools.map(toMcpTool)

function toMcpTool(tool: RuntimeTool): Tool {
  return {
    name: tool.name,
    toolset: 'runtime',
    capabilities: [],
    mirrored: [],
    offered: () => true,
    listing: () => tool.listing,
    call: async ({ admin }, given, { core }) => {
      // Offered to administrators alone; see `adminCaller`.
      if (admin === undefined) throw new Refusal('unknown_tool', { tool: tool.name })
      const report = await tool.call(core.runtime, admin, given)
      return {
        content: [{ type: 'text', text: JSON.stringify(report) }],
        structuredContent: report as Record<string, unknown>,
        isError: false,
      }
    },
  }
}
