/** To the process that reads from registries, in frames of `src/runner/protocol/wire.ts`. One request at a time. */
export type PullerRequest =
  /** @see `image_registries` and `outbound_allow`. */
  | { type: 'open'; name: string; registries: Readonly<Record<string, string>>; allow: readonly string[] }
  /** A tag or digest. */
  | { type: 'manifest'; version: string }
  | { type: 'blob'; digest: string; offset: number }

/** From it. BOUNDARY: it parses what registries send, so nothing that it says is trusted. */
export type PullerAnswer = { type: 'bytes' } | { type: 'end' } | { type: 'failed'; problem: string }
