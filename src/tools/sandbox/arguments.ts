import Type from 'typebox'
import type { SandboxRef } from '../../core/sandboxes/names.ts'
import type { SandboxView } from '../../core/sandboxes/view.ts'
import type { ToolResult } from '../tool.ts'

export const sandboxArgument = Type.String({ description: 'Name of the sandbox.' })

export const namespaceArgument = Type.Optional(
  Type.String({ description: 'Namespace of the sandbox; default if it is absent.' }),
)

/** The arguments that name a sandbox. */
export const target = { sandbox: sandboxArgument, namespace: namespaceArgument }

export const toRef = ({ sandbox, namespace }: { sandbox: string; namespace?: string }): SandboxRef => ({
  name: sandbox,
  namespace,
})

export const textResult = (text: string, isError = false): ToolResult => ({
  content: [{ type: 'text', text }],
  isError,
})

const MiB = 1024 * 1024

/** Describes a sandbox in one line. */
export function describeSandbox({
  name,
  namespace,
  state,
  reason,
  image,
  memory_bytes,
  cpus,
  workdir,
}: SandboxView): string {
  const why = reason === null ? '' : ` (${reason})`
  return `${name}: ${state}${why}, namespace ${namespace}, image ${image ?? 'default'}, ${Math.round(memory_bytes / MiB)} MiB, ${cpus} CPU, working directory ${workdir}`
}
