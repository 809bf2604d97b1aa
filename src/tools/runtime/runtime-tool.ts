import Type, { type Static, type TObject, type TProperties } from 'typebox'
import { compileLater } from '../../base/schema-check.ts'
import type { Admin } from '../../core/admin/admin.ts'
import type { Runtime } from '../../core/runtime/runtime.ts'
import type { ToolEffect } from '../../core/runtime/tool-access.ts'
import type { Annotations, ToolListing } from '../tool.ts'

interface Definition<Input extends TProperties> {
  name: string
  title: string
  /** Written for the model that chooses a tool. */
  description: string
  /** Former names and those of other servers, under which it can be called but is not listed. */
  aliases?: readonly string[]
  effect?: 'read' | 'write'
  isExpensive?: boolean
  isSensitive?: boolean
  input?: Input
  /** @param admin who calls. @throws Refusal. */
  run(runtime: Runtime, input: Static<TObject<Input>>, admin: Admin): object | Promise<object>
}

/** A tool that looks inside the running server or changes it, for administrators of the instance. */
export interface RuntimeTool extends ToolEffect {
  readonly aliases: readonly string[]
  readonly listing: ToolListing & { _meta: Record<string, unknown> }
  /**
   * Calls the tool.
   * @throws Refusal `invalid_argument`, `forbidden`, `runtime_busy`, and those of the tool.
   */
  call(runtime: Runtime, admin: Admin, given: unknown): Promise<object>
}

/** Defines a runtime tool. Its listing, the check of its arguments and who may call it come from here. */
export function runtimeTool<const Input extends TProperties = Record<never, never>>(
  definition: Definition<Input>,
): RuntimeTool {
  const {
    name,
    title,
    description,
    aliases = [],
    effect = 'read',
    isExpensive = false,
    isSensitive = false,
  } = definition
  const schema = Type.Object(definition.input ?? ({} as Input), { additionalProperties: false })
  const check = compileLater(schema)
  const isWrite = effect === 'write'
  const annotations: Annotations = { readOnlyHint: !isWrite, destructiveHint: isWrite, idempotentHint: !isWrite }
  const tool: ToolEffect = { name, isWrite, isExpensive, isSensitive }
  return {
    ...tool,
    aliases,
    listing: {
      ...{ name, title, description, inputSchema: schema, annotations: { ...annotations, openWorldHint: false } },
      _meta: { 'glovebox/expensive': isExpensive, 'glovebox/sensitive': isSensitive },
    },
    call: async (runtime, admin, given) => {
      const input = check(given ?? {})
      return runtime.call(admin, tool, input, () => definition.run(runtime, input, admin))
    },
  }
}

/** The number of entries in a result. */
export const limitOf = (byDefault: number, maximum = 500) =>
  Type.Optional(
    Type.Integer({ minimum: 1, maximum, description: `Maximum number of entries; ${byDefault} by default.` }),
  )
