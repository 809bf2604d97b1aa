import { fileURLToPath } from 'node:url'
import type { Call, CallEnded, CallEvent, Display, Kernels } from '../../src/core/sandboxes/kernels/calls.ts'

/** The kernel programs where they are in the sources. */
export const kernelsInSources = fileURLToPath(new URL('../../guest/kernels', import.meta.url))

export interface Called {
  stdout: string
  stderr: string
  displays: { data: Display; isResult: boolean }[]
  ended: CallEnded
  /** Text of the value of the last expression. */
  result: string | undefined
}

/** Collects what a call yields. */
export async function collect(events: AsyncIterable<CallEvent>): Promise<Called> {
  const parts: { stdout: Uint8Array[]; stderr: Uint8Array[] } = { stdout: [], stderr: [] }
  const displays: Called['displays'] = []
  for await (const event of events) {
    if (event.kind === 'output') parts[event.stream].push(event.bytes)
    if (event.kind === 'display') displays.push({ data: event.data, isResult: event.isResult })
    if (event.kind !== 'ended') continue
    const [stdout, stderr] = [parts.stdout, parts.stderr].map((bytes) => Buffer.concat(bytes).toString())
    const result = displays.find(({ isResult }) => isResult)?.data['text/plain']
    return { stdout: stdout ?? '', stderr: stderr ?? '', displays, ended: event, result: result?.toString() }
  }
  throw new Error('a call without an ending')
}

/** Runs code in a sandbox with a generous limit. */
export const callIn =
  (kernels: Kernels, sandboxId: string) =>
  (language: Call['language'], code: string, options: Partial<Call> & { signal?: AbortSignal } = {}): Promise<Called> =>
    collect(
      kernels.run(
        sandboxId,
        { language, code, timeoutMs: 30_000, ...options },
        options.signal ?? new AbortController().signal,
      ),
    )
