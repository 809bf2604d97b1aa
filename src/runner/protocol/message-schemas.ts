import { Type } from 'typebox'
import { Compile } from 'typebox/compile'
import { Refusal } from '../../base/errors.ts'
import { imageNameMax, imageNamePattern } from '../../base/image.ts'
import { languages, moduleNamePattern, type RunSpec, reuses, volumesMax } from '../../base/run.ts'
import { inspectionTopics, sampleMaxMs } from '../../observe/inspect.ts'
import { logLevels } from '../../observe/log.ts'
import { logLinesMax } from '../../observe/log-lines.ts'
import { imagePackagesMax } from './image-messages.ts'
import { storageNamesMax, type ToRunner } from './messages.ts'
import { sandboxShapes } from './sandbox-schemas.ts'
import { closed, count, envName, id, Limits, Network, Quota, storageName, Thread, Volume } from './schema-parts.ts'
import { WireError } from './wire.ts'

/*
 * BOUNDARY: the front reads the internet; should it fall, this is what stands between it and root. The runner takes
 * only messages of exactly these shapes, and no limit that is out of all proportion.
 */

const Spec = Type.Object(
  {
    runId: id,
    orgId: id,
    keyId: id,
    profile: id,
    profileRevision: id,
    reuse: Type.Union(reuses.map((reuse) => Type.Literal(reuse))),
    language: Type.Union(languages.map((language) => Type.Literal(language))),
    image: Type.Optional(Type.String({ pattern: imageNamePattern, maxLength: imageNameMax })),
    preload: Type.Optional(Type.Array(Type.String({ pattern: moduleNamePattern }), { maxItems: 32 })),
    env: Type.Record(Type.String({ pattern: envName }), Type.String({ maxLength: 65_536 }), {
      maxProperties: 256,
      additionalProperties: false,
    }),
    limits: Limits,
    detached: Type.Boolean(),
    thread: Type.Optional(Thread),
    // And the packages of the profile.
    volumes: Type.Optional(Type.Array(Volume, { maxItems: volumesMax + 1 })),
    network: Type.Optional(Network),
  },
  { additionalProperties: false },
)

const cause = Type.Union([Type.Literal('cancelled'), Type.Literal('shutdown')])
const codeBytes = Type.Integer({ minimum: 0, maximum: 1024 * 1024 })
const stdinBytes = Type.Integer({ minimum: 0, maximum: 4 * 1024 * 1024 })

/** What it may be is said by a refusal, not by the end of the connection: clients choose paths. */
const path = Type.String({ maxLength: 65_536 })
const area = Type.Union([Type.Literal('threads'), Type.Literal('volumes')])
const where = Type.Object({ area, org: storageName, name: storageName }, closed)
const thread = Type.Object({ area: Type.Literal('threads'), org: storageName, name: storageName }, closed)
const inStorage = <Name extends string>(type: Name) => ({ type: Type.Literal(type), request: count, where })

/** Also the ID of an image. */
const imageName = Type.Union([
  Type.String({ pattern: imageNamePattern, maxLength: imageNameMax }),
  Type.String({ pattern: '^img_[A-Za-z0-9_-]{20}$' }),
])
const newImageName = Type.String({ pattern: imageNamePattern, maxLength: imageNameMax })
/** https://www.debian.org/doc/debian-policy/ch-controlfields.html#source */
const packageName = Type.String({ pattern: '^[a-z0-9][a-z0-9+.-]{1,99}$' })
const ImageChange = Type.Union([
  Type.Object({ kind: Type.Literal('pull'), name: newImageName }, closed),
  Type.Object(
    {
      kind: Type.Literal('build'),
      name: newImageName,
      packages: Type.Array(packageName, { minItems: 1, maxItems: imagePackagesMax }),
    },
    closed,
  ),
  Type.Object(
    { name: newImageName, path: Type.String({ pattern: '^/[^\\0]{0,4095}$' }), kind: Type.Literal('import') },
    closed,
  ),
])

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
  network_runs: Type.Object({ type: Type.Literal('network_runs'), request: count }, closed),
  network_change: Type.Object(
    { type: Type.Literal('network_change'), request: count, runId: id, network: Network },
    closed,
  ),
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
  images_list: Type.Object({ type: Type.Literal('images_list'), request: count }, closed),
  images_change: Type.Object({ type: Type.Literal('images_change'), request: count, change: ImageChange }, closed),
  images_stop: Type.Object({ type: Type.Literal('images_stop'), request: count }, closed),
  images_remove: Type.Object({ type: Type.Literal('images_remove'), request: count, name: imageName }, closed),
  images_collect: Type.Object({ type: Type.Literal('images_collect'), request: count }, closed),
  inspect: Type.Object(
    {
      type: Type.Literal('inspect'),
      request: count,
      topic: Type.Union([...inspectionTopics, 'engine' as const].map((topic) => Type.Literal(topic))),
      options: Type.Object(
        {
          durationMs: Type.Optional(Type.Integer({ minimum: 1, maximum: sampleMaxMs })),
          top: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
          limit: Type.Optional(Type.Integer({ minimum: 1, maximum: logLinesMax })),
          level: Type.Optional(Type.Union(logLevels.map((level) => Type.Literal(level)))),
          keyword: Type.Optional(Type.String({ maxLength: 256 })),
          setLevel: Type.Optional(Type.Union(logLevels.map((level) => Type.Literal(level)))),
          revertMs: Type.Optional(Type.Integer({ minimum: 1_000, maximum: 24 * 3600 * 1000 })),
        },
        closed,
      ),
    },
    closed,
  ),
  retire_key: Type.Object({ type: Type.Literal('retire_key'), request: count, keyId: id }, closed),
}

const checks = new Map<unknown, { Check(value: unknown): boolean }>(
  Object.entries({ ...shapes, ...sandboxShapes }).map(([type, shape]) => [type, Compile(shape)]),
)

/**
 * Values of callers are checked before, and one that was missed must not cost the front its connection with every run.
 * @param refuse answers a request of a known kind whose values are out of bounds.
 * @returns the header as the message it claims to be; `undefined` where it was refused.
 * @throws WireError for anything else that is not exactly one of the messages a front may send.
 */
export function parseMessage(
  header: unknown,
  refuse: (request: number, refusal: Refusal) => void,
): ToRunner | undefined {
  const { type, request } = typeof header === 'object' && header !== null ? (header as Record<string, unknown>) : {}
  const check = checks.get(type)
  if (check?.Check(header)) return header as ToRunner
  if (!check || type === 'hello' || !Number.isSafeInteger(request))
    throw new WireError(`not a message of a front: ${String(type).slice(0, 32)}`)
  refuse(
    request as number,
    new Refusal('invalid_argument', { field: 'a value', problem: 'is too long or out of range' }),
  )
  return undefined
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
