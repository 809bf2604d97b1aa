import { Type } from 'typebox'
import { volumesMax } from '../../base/run.ts'
import { figuresMax, reviewPathsMax } from './sandbox-messages.ts'
import {
  closed,
  count,
  envName,
  id,
  Limits,
  Network,
  Quota,
  size,
  storageName,
  Thread,
  Volume,
} from './schema-parts.ts'

/*
 * BOUNDARY: as in `message-schemas.ts`, the runner takes only messages of exactly these shapes.
 */

const { memoryBytes, cpus, pids, openFiles, fileBytes, tmpBytes } = Limits.properties
const env = Type.Record(Type.String({ pattern: envName }), Type.String({ maxLength: 65_536 }), {
  maxProperties: 256,
  additionalProperties: false,
})
/** What it may be is said by the sandbox: callers choose it. */
const path = Type.String({ minLength: 1, maxLength: 4_096 })
const user = Type.String({ minLength: 1, maxLength: 64 })
const milliseconds = Type.Integer({ minimum: 0, maximum: 2 ** 31 - 1 })

const Spec = Type.Object(
  {
    sandboxId: storageName,
    orgId: storageName,
    keyId: id,
    image: Type.Optional(Type.String({ minLength: 1, maxLength: 512 })),
    env,
    workdir: path,
    user,
    limits: Type.Object({ memoryBytes, cpus, pids, openFiles, fileBytes, tmpBytes }, closed),
    disk: Quota,
    // And the packages of the profile.
    volumes: Type.Optional(Type.Array(Volume, { maxItems: volumesMax + 1 })),
    thread: Type.Optional(Thread),
    workspace: Type.Optional(storageName),
    network: Type.Optional(Network),
  },
  closed,
)

const TerminalSize = Type.Object(
  { columns: Type.Integer({ minimum: 1, maximum: 65_535 }), rows: Type.Integer({ minimum: 1, maximum: 65_535 }) },
  closed,
)

const Process = Type.Object(
  {
    argv: Type.Array(Type.String({ maxLength: 512 * 1024 }), { minItems: 1, maxItems: 4_096 }),
    env: Type.Optional(env),
    cwd: Type.Optional(path),
    user: Type.Optional(user),
    terminal: Type.Optional(TerminalSize),
    stdin: Type.Optional(Type.Boolean()),
    channel: Type.Optional(Type.Boolean()),
    timeoutMs: Type.Optional(Type.Integer({ minimum: 1, maximum: 2 ** 31 - 1 })),
    keepBytes: Type.Optional(Type.Integer({ minimum: 0, maximum: 8 * 1024 * 1024 })),
  },
  closed,
)

const inputStream = Type.Union([Type.Literal('stdin'), Type.Literal('channel')])
const ofSandbox = <Name extends string>(type: Name) => ({
  type: Type.Literal(type),
  request: count,
  sandboxId: storageName,
})
/** Which file it names is said by a refusal: callers choose paths. */
const anyPath = Type.String({ maxLength: 65_536 })
const mode = Type.Optional(Type.Integer({ minimum: 0, maximum: 0o777 }))
const flag = Type.Optional(Type.Boolean())
const ofFile = <Name extends string>(type: Name) => ({
  ...ofSandbox(type),
  path: anyPath,
  user: Type.Optional(user),
})
const ofContext = <Name extends string>(type: Name) => ({ ...ofSandbox(type), context: storageName })
const ofProcess = <Name extends string>(type: Name) => ({ ...ofSandbox(type), processId: size })

export const sandboxShapes = {
  sandbox_start: Type.Object({ type: Type.Literal('sandbox_start'), request: count, spec: Spec }, closed),
  sandbox_stop: Type.Object({ ...ofSandbox('sandbox_stop'), graceMs: milliseconds }, closed),
  sandbox_pause: Type.Object(ofSandbox('sandbox_pause'), closed),
  sandbox_resume: Type.Object(ofSandbox('sandbox_resume'), closed),
  sandbox_network: Type.Object({ ...ofSandbox('sandbox_network'), network: Network }, closed),
  sandbox_remove: Type.Object({ ...ofSandbox('sandbox_remove'), orgId: storageName }, closed),
  sandbox_review: Type.Object(
    {
      ...ofSandbox('sandbox_review'),
      orgId: storageName,
      workspace: storageName,
      act: Type.Union([Type.Literal('list'), Type.Literal('diff'), Type.Literal('apply'), Type.Literal('drop')]),
      paths: Type.Optional(Type.Array(anyPath, { maxItems: reviewPathsMax })),
    },
    closed,
  ),
  sandbox_state_keep: Type.Object({ ...ofContext('sandbox_state_keep'), most: count, undone: count }, closed),
  sandbox_state_check: Type.Object({ ...ofContext('sandbox_state_check'), calls: count }, closed),
  sandbox_state_rewind: Type.Object({ ...ofContext('sandbox_state_rewind'), calls: count }, closed),
  sandbox_state_forget: Type.Object(ofContext('sandbox_state_forget'), closed),
  sandbox_list: Type.Object({ type: Type.Literal('sandbox_list'), request: count }, closed),
  sandbox_changes: Type.Object({ type: Type.Literal('sandbox_changes'), request: count }, closed),
  sandbox_figures: Type.Object(
    {
      type: Type.Literal('sandbox_figures'),
      request: count,
      sandboxIds: Type.Array(storageName, { maxItems: figuresMax }),
    },
    closed,
  ),
  process_start: Type.Object(
    { ...ofSandbox('process_start'), spec: Process, windowBytes: Type.Optional(count) },
    closed,
  ),
  process_attach: Type.Object({ ...ofProcess('process_attach'), afterSeq: count, windowBytes: count }, closed),
  process_more: Type.Object({ type: Type.Literal('process_more'), attachment: count, bytes: count }, closed),
  process_detach: Type.Object({ type: Type.Literal('process_detach'), attachment: count }, closed),
  process_write: Type.Object({ ...ofProcess('process_write'), to: inputStream }, closed),
  process_close: Type.Object({ ...ofProcess('process_close'), what: inputStream }, closed),
  process_signal: Type.Object(
    {
      ...ofProcess('process_signal'),
      signal: Type.Integer({ minimum: 1, maximum: 64 }),
      target: Type.Union([Type.Literal('group'), Type.Literal('one')]),
    },
    closed,
  ),
  process_resize: Type.Object({ ...ofProcess('process_resize'), size: TerminalSize }, closed),
  process_list: Type.Object(ofSandbox('process_list'), closed),
  sandbox_open_files: Type.Object({ type: Type.Literal('sandbox_open_files'), request: count, spec: Spec }, closed),
  sandbox_file_stat: Type.Object(ofFile('sandbox_file_stat'), closed),
  sandbox_file_list: Type.Object(
    {
      ...ofFile('sandbox_file_list'),
      cursor: Type.Optional(Type.String({ maxLength: 1_024 })),
      limit: Type.Integer({ minimum: 1, maximum: 1_000 }),
    },
    closed,
  ),
  sandbox_file_read: Type.Object(
    {
      ...ofFile('sandbox_file_read'),
      range: Type.Optional(Type.Object({ offset: count, lengthBytes: count }, closed)),
    },
    closed,
  ),
  sandbox_file_write: Type.Object({ ...ofFile('sandbox_file_write'), append: flag, mode, makeParents: flag }, closed),
  sandbox_file_make_directory: Type.Object({ ...ofFile('sandbox_file_make_directory'), parents: flag, mode }, closed),
  sandbox_file_move: Type.Object({ ...ofFile('sandbox_file_move'), to: anyPath, mayReplace: Type.Boolean() }, closed),
  sandbox_file_copy: Type.Object({ ...ofFile('sandbox_file_copy'), to: anyPath, mayReplace: Type.Boolean() }, closed),
  sandbox_file_remove: Type.Object({ ...ofFile('sandbox_file_remove'), recursive: Type.Boolean() }, closed),
  sandbox_file_watch: Type.Object({ ...ofFile('sandbox_file_watch'), recursive: Type.Boolean() }, closed),
  process_forget: Type.Object(ofProcess('process_forget'), closed),
  tunnel_open: Type.Object(
    { ...ofSandbox('tunnel_open'), port: Type.Integer({ minimum: 1, maximum: 65_535 }) },
    closed,
  ),
  tunnel_send: Type.Object({ type: Type.Literal('tunnel_send'), tunnel: count }, closed),
  tunnel_more: Type.Object({ type: Type.Literal('tunnel_more'), tunnel: count, bytes: count }, closed),
  tunnel_finish: Type.Object({ type: Type.Literal('tunnel_finish'), tunnel: count }, closed),
  tunnel_close: Type.Object({ type: Type.Literal('tunnel_close'), tunnel: count }, closed),
}
