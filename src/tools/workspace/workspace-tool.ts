import Type, { type Static, type TObject, type TProperties } from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { Redactor, StreamRedactor } from '../../base/redaction/redactor.ts'
import { compileLater } from '../../base/schema-check.ts'
import type { Content } from '../content.ts'
import { redactorOf } from '../redaction.ts'
import { errorContent, type Tool, type ToolResult, tool } from '../tool.ts'

/** What a tool shows of a reply. */
export interface Shown {
  text: string
  /** Instead of text. */
  image?: { data: string; mimeType: string }
  /** For programs. */
  structured?: Record<string, unknown>
  isError?: boolean
}

/** How a tool calls the agent. */
export interface AgentCall {
  op: string
  args: Readonly<Record<string, unknown>>
  /** Absent: `quickMs`. */
  timeoutMs?: number
}

interface WorkspaceToolDefinition<Properties extends TProperties, Reply extends TObject> {
  name: string
  title: string
  /** Offered also where workspaces are read-only. */
  readOnly: boolean
  /** Absent: as `readOnly`. */
  idempotent?: boolean
  description: string
  input: Properties
  aliases?: Readonly<Record<string, (value: unknown) => unknown>>
  /** The reply of the agent, which is untrusted: whatever it does not allow is a fault of the agent. */
  reply: Reply
  call(input: Static<TObject<Properties>>): AgentCall
  show(reply: Static<Reply>, input: Static<TObject<Properties>>, redact: Redact): Shown
}

/** Removes secrets from a text that is shown in pieces. @param stream identifies it. @param isLast no piece follows. */
export type Redact = (stream: string, piece: string, isLast: boolean) => string

/** Longest time for an operation that reads or changes files: searches end after 20 s, snapshots after 300 s. */
const quickMs = 330_000

const workspaceArgument = {
  workspace: Type.Optional(
    Type.String({
      maxLength: 1024,
      description:
        'Name of the workspace, where there are several; thread:ID or volume:SLUG for the files of a thread or volume. NAME:/DIRECTORY selects a directory in it.',
    }),
  ),
}

/** Defines a tool that calls the agent of a workspace. Everything that it sends passes the redactor. */
export function workspaceTool<Properties extends TProperties, Reply extends TObject>(
  definition: WorkspaceToolDefinition<Properties, Reply>,
): Tool {
  const { name, title, readOnly, idempotent = readOnly, description, input, aliases, reply, call, show } = definition
  const checkReply = compileLater(reply)
  return tool({
    ...{ name, title, toolset: 'workspace', redacted: true },
    capabilities: readOnly ? ['workspaces.read'] : ['workspaces.write'],
    annotations: { readOnlyHint: readOnly, destructiveHint: !readOnly, idempotentHint: idempotent },
    offered: ({ calls }) => readOnly || !calls.workspaceReadOnly,
    describe: () => description,
    input: Type.Object({ ...input, ...workspaceArgument }, { additionalProperties: false }) as TObject,
    ...(aliases && { aliases }),
    narrow: (schema) => schema,
    run: (caller, given, context) =>
      asResult(async () => {
        const { workspace, ...rest } = given as { workspace?: string }
        const arguments_ = rest as Static<TObject<Properties>>
        const asked = { timeoutMs: quickMs, ...call(arguments_) }
        const reader = context.connectionId
        const verb = readOnly ? context.core.workspaces.read : context.core.workspaces.change
        const answer = await verb(caller, { workspace, reader, ...asked }, context.signal)
        if (answer.kind === 'refused') return { content: [{ type: 'text', text: answer.text }], isError: true }
        const value = checked(checkReply, answer.value)
        const redactor = await redactorOf(caller, context.core)
        const redact = redactIn(redactor, `${caller.orgId} ${reader ?? caller.keyId} ${workspace ?? ''}`)
        return toResult(show(value, arguments_, redact))
      }),
  })
}

function checked<Reply>(check: (given: unknown) => Reply, value: unknown): Reply {
  try {
    return check(value)
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    throw new Refusal('workspace_failed', { reason: `it sent a reply of another form: ${error.message.slice(0, 300)}` })
  }
}

function toResult({ text, image, structured, isError = false }: Shown): ToolResult {
  const content: Content[] = image
    ? [{ type: 'image', ...image }]
    : [{ type: 'text', text: text === '' ? '(no output)' : text }]
  return { content, ...(structured && { structuredContent: structured }), isError }
}

/**
 * Returns a refusal that the caller can act on as a result with `isError`, which the model sees.
 * @throws what is not the fault of the caller.
 */
export async function asResult(work: () => Promise<ToolResult>): Promise<ToolResult> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof Refusal) || error.row.http >= 500) throw error
    return errorContent(error)
  }
}

/** Texts that arrive in pieces, by the caller that reads them; the least recently read is dropped first. */
const streams = new Map<string, StreamRedactor>()
const streamsMax = 512

function redactIn(redactor: Redactor, reader: string): Redact {
  return (name, piece, isLast) => {
    const key = `${reader} ${name}`
    const stream = streams.get(key) ?? redactor.stream()
    streams.delete(key)
    const shown = stream.push(piece).text
    if (isLast) return shown + stream.end().text
    streams.set(key, stream)
    if (streams.size > streamsMax) streams.delete(streams.keys().next().value!)
    return shown
  }
}

/** A finding of a test runner or checker. */
export const Finding = Type.Object({
  file: Type.Optional(Type.String()),
  line: Type.Optional(Type.Integer()),
  column: Type.Optional(Type.Integer()),
  rule: Type.Optional(Type.String()),
  severity: Type.Optional(Type.String()),
  message: Type.Optional(Type.String()),
  test: Type.Optional(Type.String()),
  detail: Type.Optional(Type.String()),
})
export type Finding = Static<typeof Finding>

/** Returns findings as `file:line:column:rule: message`, one per line, without the parts that are not known. */
export const findingLines = (findings: readonly Finding[]): string =>
  findings
    .map(({ file = '(unknown)', line, column, rule, message = '' }) => {
      const place = [file, line, column, rule].filter((part) => part !== undefined).join(':')
      return `${place}: ${message}`
    })
    .join('\n')
