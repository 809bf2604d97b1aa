import { Type } from 'typebox'
import { Compile } from 'typebox/compile'
import { languages, moduleNamePattern, type RunSpec, reuses, volumesMax } from '../../base/run.ts'
import { storageNamesMax, type ToRunner } from './messages.ts'
import { WireError } from './wire.ts'

/*
 * BOUNDARY: the front reads the internet; should it fall, this is what stands between it and root. The runner takes
 * only messages of exactly these shapes, and no limit that is out of all proportion.
 */

const id = Type.String({ minLength: 1, maxLength: 128, pattern: '^[A-Za-z0-9_.:-]+$' })
const count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
const size = Type.Integer({ minimum: 0, maximum: 2 ** 44 })

const Limits = Type.Object(
  {
    memoryBytes: Type.Integer({ minimum: 16 * 1024 * 1024, maximum: 2 ** 44 }),
    cpus: Type.Number({ minimum: 0.01, maximum: 4096 }),
    pids: Type.Integer({ minimum: 4, maximum: 4_194_304 }),
    openFiles: Type.Integer({ minimum: 16, maximum: 1_048_576 }),
    fileBytes: size,
    tmpBytes: size,
    homeBytes: size,
    outputSoftBytes: Type.Integer({ minimum: 1024, maximum: 64 * 1024 * 1024 }),
    outputHardBytes: size,
    timeoutMs: Type.Integer({ minimum: 1, maximum: 7 * 24 * 3600 * 1000 }),
  },
  { additionalProperties: false },
)

/** It becomes the name of a file. */
const storageName = Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$' })

const Quota = Type.Object(
  {
    // With less ext4 has no journal.
    bytes: Type.Integer({ minimum: 8 * 1024 * 1024, maximum: 2 ** 44 }),
    inodes: Type.Integer({ minimum: 16, maximum: 2 ** 31 }),
  },
  { additionalProperties: false },
)

const Thread = Type.Object({ id: storageName, fence: count, quota: Quota }, { additionalProperties: false })

const Volume = Type.Object(
  { slug: storageName, name: storageName, readOnly: Type.Boolean(), quota: Quota },
  { additionalProperties: false },
)

const Spec = Type.Object(
  {
    runId: id,
    orgId: id,
    keyId: id,
    profile: id,
    profileRevision: id,
    reuse: Type.Union(reuses.map((reuse) => Type.Literal(reuse))),
    language: Type.Union(languages.map((language) => Type.Literal(language))),
    preload: Type.Optional(Type.Array(Type.String({ pattern: moduleNamePattern }), { maxItems: 32 })),
    env: Type.Record(Type.String({ pattern: '^[A-Za-z_][A-Za-z0-9_]{0,127}$' }), Type.String({ maxLength: 65_536 }), {
      maxProperties: 256,
      additionalProperties: false,
    }),
    limits: Limits,
    detached: Type.Boolean(),
    thread: Type.Optional(Thread),
    volumes: Type.Optional(Type.Array(Volume, { maxItems: volumesMax })),
  },
  { additionalProperties: false },
)

const closed = { additionalProperties: false }
const cause = Type.Union([Type.Literal('cancelled'), Type.Literal('shutdown')])
const codeBytes = Type.Integer({ minimum: 0, maximum: 1024 * 1024 })
const stdinBytes = Type.Integer({ minimum: 0, maximum: 4 * 1024 * 1024 })

/** What it may be is said by a refusal, not by the end of the connection: clients choose paths. */
const path = Type.String({ maxLength: 65_536 })
const area = Type.Union([Type.Literal('threads'), Type.Literal('volumes')])
const where = Type.Object({ area, org: storageName, name: storageName }, closed)
const thread = Type.Object({ area: Type.Literal('threads'), org: storageName, name: storageName }, closed)
const inStorage = <Name extends string>(type: Name) => ({ type: Type.Literal(type), request: count, where })

const shapes = {
  hello: Type.Object({ type: Type.Literal('hello'), version: count }, closed),
  ping: Type.Object({ type: Type.Literal('ping'), request: count }, closed),
  start: Type.Object(
    {
      ...{ type: Type.Literal('start'), request: count, spec: Spec, windowBytes: count },
      ...{ codeBytes, stdinBytes: Type.Optional(stdinBytes) },
    },
    closed,
  ),
  attach: Type.Object(
    { type: Type.Literal('attach'), request: count, runId: id, afterSeq: count, windowBytes: count },
    closed,
  ),
  more: Type.Object({ type: Type.Literal('more'), attachment: count, bytes: count }, closed),
  detach: Type.Object({ type: Type.Literal('detach'), attachment: count }, closed),
  cancel: Type.Object({ type: Type.Literal('cancel'), request: count, runId: id, cause }, closed),
  outlive: Type.Object({ type: Type.Literal('outlive'), request: count, runId: id }, closed),
  list: Type.Object({ type: Type.Literal('list'), request: count }, closed),
  stats: Type.Object({ type: Type.Literal('stats'), request: count }, closed),
  acknowledge: Type.Object({ type: Type.Literal('acknowledge'), request: count, runId: id }, closed),
  files_list: Type.Object(
    {
      ...inStorage('files_list'),
      path,
      cursor: Type.Optional(Type.String({ maxLength: 32 })),
      limit: Type.Integer({ minimum: 1, maximum: 1_000 }),
    },
    closed,
  ),
  files_stat: Type.Object({ ...inStorage('files_stat'), path }, closed),
  files_read: Type.Object(
    {
      ...inStorage('files_read'),
      path,
      range: Type.Optional(Type.Object({ offset: count, lengthBytes: count }, closed)),
    },
    closed,
  ),
  files_write: Type.Object({ ...inStorage('files_write'), path }, closed),
  files_bytes: Type.Object({ type: Type.Literal('files_bytes'), request: count }, closed),
  files_finish: Type.Object({ type: Type.Literal('files_finish'), request: count }, closed),
  files_more: Type.Object({ type: Type.Literal('files_more'), request: count, bytes: count }, closed),
  files_stop: Type.Object({ type: Type.Literal('files_stop'), request: count }, closed),
  files_make_directory: Type.Object({ ...inStorage('files_make_directory'), path }, closed),
  files_move: Type.Object({ ...inStorage('files_move'), from: path, to: path, mayReplace: Type.Boolean() }, closed),
  files_delete: Type.Object({ ...inStorage('files_delete'), path, recursive: Type.Boolean() }, closed),
  storage_create: Type.Object({ ...inStorage('storage_create'), quota: Quota }, closed),
  storage_remove: Type.Object(inStorage('storage_remove'), closed),
  storage_fork: Type.Object({ type: Type.Literal('storage_fork'), request: count, from: thread, to: thread }, closed),
  storage_inspect: Type.Object(inStorage('storage_inspect'), closed),
  storage_sizes: Type.Object(
    {
      type: Type.Literal('storage_sizes'),
      request: count,
      area,
      org: storageName,
      names: Type.Array(storageName, { maxItems: storageNamesMax }),
    },
    closed,
  ),
  storage_names: Type.Object(
    {
      type: Type.Literal('storage_names'),
      request: count,
      area,
      org: storageName,
      after: Type.String({ maxLength: 128 }),
      limit: Type.Integer({ minimum: 1, maximum: storageNamesMax }),
    },
    closed,
  ),
  retire_key: Type.Object({ type: Type.Literal('retire_key'), request: count, keyId: id }, closed),
}

const checks = new Map<unknown, { Check(value: unknown): boolean }>(
  Object.entries(shapes).map(([type, shape]) => [type, Compile(shape)]),
)

/**
 * @returns the header as the message it claims to be.
 * @throws WireError for anything that is not exactly one of the messages a front may send.
 */
export function parseMessage(header: unknown): ToRunner {
  const type = typeof header === 'object' && header !== null && 'type' in header ? header.type : undefined
  if (!checks.get(type)?.Check(header)) throw new WireError(`not a message of a front: ${String(type).slice(0, 32)}`)
  return header as ToRunner
}

/** Cuts a start's payload into code and standard input. @throws WireError where the sizes do not add up. */
export function inputOf(
  message: Extract<ToRunner, { type: 'start' }>,
  payload: Buffer,
): { spec: RunSpec; code: Buffer; stdin: Buffer | undefined } {
  if (message.codeBytes + (message.stdinBytes ?? 0) !== payload.length) throw new WireError('a start lacks its input')
  return {
    spec: message.spec,
    code: payload.subarray(0, message.codeBytes),
    stdin: message.stdinBytes === undefined ? undefined : payload.subarray(message.codeBytes),
  }
}
