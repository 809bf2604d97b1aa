import { Refusal } from '../base/errors.ts'
import { type BusyAnswer, busyAnswers, type CallPolicy } from '../base/profile.ts'
import type { ToolListing, ToolResult } from '../tools/tool.ts'

/** How the calls of one client are answered: what its URL says, else its profile. */
export interface ResultOptions extends Pick<CallPolicy, 'busyWaitMs' | 'structuredResults' | 'exitCodeIsError'> {
  onBusyThread: BusyAnswer
}

/** The parameters of the URL that change how calls are answered. */
export const resultParameters = {
  structured: 'true or false: whether results contain structuredContent. By default as the profile says.',
  busy: 'refuse, result or wait: the answer to a call whose thread is in use. By default as the profile says.',
  errors: 'exit_code or endings: whether an exit code other than 0 is an error result, or only a run that was ended.',
} as const

/**
 * Reads the options of a client.
 * @param query returns a parameter of the URL.
 * @throws Refusal `invalid_argument`.
 */
export function readResultOptions(
  query: (name: keyof typeof resultParameters) => string | undefined,
  { busyWaitMs, ...profile }: CallPolicy,
): ResultOptions {
  const choose = <Value extends string>(name: keyof typeof resultParameters, values: readonly Value[]) => {
    const given = query(name)
    if (given === undefined) return undefined
    const value = values.find((known) => known === given)
    if (value === undefined)
      throw new Refusal('invalid_argument', { field: name, problem: `must be one of ${values.join(', ')}` })
    return value
  }
  const structured = choose('structured', ['true', 'false'])
  const errors = choose('errors', ['exit_code', 'endings'])
  return {
    busyWaitMs,
    onBusyThread: choose('busy', busyAnswers) ?? profile.onBusyThread,
    structuredResults: structured === undefined ? profile.structuredResults : structured === 'true',
    exitCodeIsError: errors === undefined ? profile.exitCodeIsError : errors === 'exit_code',
  }
}

/** The key of the figures of a run in `_meta`, which clients do not hand to their models. */
export const runMetaKey = 'glovebox/run'

/**
 * Returns a result in the form that the client chose. Without `structuredContent`, the ending and the figures of a run
 * are in `_meta`. A result with images or files is never an error: common clients drop them from errors.
 * @param baseUrl where the client reaches this server, without a slash at its end.
 */
export function toClientResult(
  result: ToolResult,
  { structuredResults, exitCodeIsError }: ResultOptions,
  baseUrl: string,
): ToolResult {
  const { structuredContent, ...rest } = result
  const fields = structuredContent && { ...structuredContent, ...imageLinks(result, structuredContent, baseUrl) }
  const isError = result.isError && !result.content.some(isLostInErrors) && (exitCodeIsError || !hasExited(fields))
  if (fields === undefined) return { ...result, isError }
  if (structuredResults) return { ...result, structuredContent: lean(fields), isError }
  return {
    ...rest,
    isError,
    ...(Object.hasOwn(fields, 'trace_id') && { _meta: { [runMetaKey]: withoutText(fields) } }),
  }
}

/** Returns the field `images` for the result of a run whose output is kept: a link for each image of it. */
function imageLinks({ content }: ToolResult, fields: Record<string, unknown>, baseUrl: string): object {
  const { trace_id: runId, output_kept: isKept } = fields
  const images = content.flatMap((item) => (item.type === 'image' ? [item] : []))
  if (images.length === 0 || typeof runId !== 'string' || isKept !== true) return {}
  return {
    images: images.map(({ mimeType }, index) => ({
      mime_type: mimeType,
      url: `${baseUrl}/v1/executions/${runId}/images/${index + 1}`,
    })),
  }
}

const isLostInErrors = ({ type }: ToolResult['content'][number]): boolean => type !== 'text'

const hasExited = (fields: ToolResult['structuredContent']): boolean =>
  (fields?.ending as { kind?: string } | undefined)?.kind === 'exited'

/** What an output schema requires, whatever its value. */
const required: readonly string[] = ['exit_code', 'signal', 'stdout', 'stderr', 'size']

/** Returns the fields of a result that say something: not zero, and not the same for every run of a profile. */
const lean = (fields: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(fields).filter(
      ([name, value]) =>
        required.includes(name) || (name !== 'limits' && value !== null && value !== 0 && value !== false),
    ),
  )

/** Returns the figures of a run without what is in the text. */
function withoutText(fields: Record<string, unknown>): Record<string, unknown> {
  const { stdout: _, stderr: __, signal, exit_code, ...rest } = lean(fields)
  return { ...rest, ...(signal !== null && { signal }), ...(exit_code !== null && { exit_code }) }
}

/** Returns a tool as it is listed to the client. */
export function toClientListing(listing: ToolListing, { structuredResults }: ResultOptions): ToolListing {
  const { outputSchema: _, ...rest } = listing
  return structuredResults ? listing : rest
}
