import { thresholds } from '../src/core/runtime/health-checks.ts'
import { roleFor } from '../src/core/runtime/tool-access.ts'
import { runtimePrompts } from '../src/tools/runtime/prompts.ts'
import type { RuntimeTool } from '../src/tools/runtime/runtime-tool.ts'
import { runtimeTools } from '../src/tools/runtime/tools.ts'

/** Returns the page of the runtime tools. @param table formats a table with a header. */
export function runtimeToolsPage(notice: string, table: (head: string[], rows: string[][]) => string): string {
  const byDomain = Map.groupBy(runtimeTools, ({ name }) => name.split('_')[0]!)
  const sections = [...byDomain].map(
    ([domain, tools]) => `## ${domain}\n\n${table(['Tool', 'Arguments', 'Role', 'What it does'], tools.map(toRow))}`,
  )
  const prompts = runtimePrompts.map(({ name, description, arguments: known = [], steps }) => [
    `\`${name}\``,
    known.map((one) => `\`${one.name}\`${one.required ? ' (required)' : ''}`).join(', ') || '–',
    description,
    `${steps.length}`,
  ])
  const limits = Object.entries(thresholds).map(([name, { warning, critical }]) => [
    `\`${name}\``,
    `${warning}`,
    `${critical}`,
  ])
  return `${notice}

# Runtime tools

The tools, prompts and thresholds of [the runtime endpoint](runtime.md). A tool with other names can be called by each of
them. The role is the least that an admin token needs; calls of tools marked *write* or *sensitive* are recorded in the
audit log, and one *expensive* tool works at a time.

${sections.join('\n\n')}

## Prompts

${table(['Prompt', 'Arguments', 'Purpose', 'Steps'], prompts)}

## Thresholds

Each is reached at the given value. Shares are 0 to 1, times are milliseconds, sizes are bytes.

${table(['Figure', 'Warning', 'Critical'], limits)}
`
}

function toRow(tool: RuntimeTool): string[] {
  const { name, aliases, listing, isWrite, isExpensive, isSensitive } = tool
  const { properties, required = [] } = listing.inputSchema as { properties: object; required?: string[] }
  const given = Object.keys(properties).map((one) => `\`${one}\`${required.includes(one) ? '' : '?'}`)
  const marks = [isWrite && 'write', isExpensive && 'expensive', isSensitive && 'sensitive'].filter(Boolean)
  return [
    [`\`${name}\``, ...aliases.map((alias) => `\`${alias}\``)].join('<br>'),
    given.join(', ') || '–',
    [roleFor(tool), ...marks].join(', '),
    listing.description,
  ]
}
