/** What REST answers, as schemas: for the document alone. Tests hold real answers against them. */

import Type, { type TObject, type TSchema } from 'typebox'
import { executionStatuses } from '../../base/execution-status.ts'
import { SandboxExecuteOutput } from '../../tools/execute/schema.ts'

const time = Type.String({ description: 'ISO 8601, UTC.' })
const orNull = (schema: TSchema): TSchema => Type.Unsafe({ anyOf: [schema, { type: 'null' }] })
export const listOf = (item: TSchema): TObject =>
  Type.Object({ data: Type.Array(item), next_cursor: orNull(Type.String({ description: 'Ask with it for more.' })) })

export const ErrorBody = Type.Object(
  {
    error: Type.String({ description: 'One word for the kind of problem.' }),
    message: Type.String({ description: 'What is wrong, for a person or a model.' }),
    hint: Type.Optional(Type.String({ description: 'What to do about it.' })),
  },
  { description: 'Every error has this body.' },
)

const { status: _, ...output } = SandboxExecuteOutput.properties

export const ExecutionAnswer = Type.Object(
  {
    ...output,
    status: Type.Unsafe<string>({ type: 'string', enum: [...executionStatuses] }),
    success: Type.Boolean(),
    error: orNull(Type.String({ description: 'How it ended, in words; null on success.' })),
    truncated: Type.Boolean({ description: 'Output was left out.' }),
    created_at: time,
    completed_at: time,
    delivery_mode: Type.Unsafe<string>({ type: 'string', enum: ['inline', 'streaming', 'webhook'] }),
  },
  { description: 'A run that has ended.' },
)

export const FileList = Type.Object({
  files: Type.Array(
    Type.Object({
      name: Type.String(),
      path: Type.String(),
      size: Type.Integer({ minimum: 0, description: '0 for a directory.' }),
      modified: time,
      is_directory: Type.Boolean(),
    }),
  ),
  next_cursor: orNull(Type.String()),
})

export const SignedLink = Type.Object({
  url: Type.String({ description: 'Needs no key.' }),
  method: Type.Unsafe<string>({ type: 'string', enum: ['GET', 'PUT'] }),
  headers: Type.Array(Type.Object({ name: Type.String(), value: Type.String() })),
  expires_at: time,
})

export const DeletedFiles = Type.Object({
  deleted: Type.Integer({ minimum: 0, description: 'Entries that are gone.' }),
})
export const UploadedFile = Type.Object({ path: Type.String(), size: Type.Integer({ minimum: 0 }) })

export const Health = Type.Object({ status: Type.String(), reason: Type.Optional(Type.String()) })

export const Org = Type.Object({ id: Type.String(), name: Type.String(), created_at: time })
export const Orgs = listOf(Org)

export const Key = Type.Object({
  id: Type.String(),
  org_id: Type.String(),
  name: Type.String(),
  prefix: orNull(Type.String({ description: 'How its secret begins.' })),
  profile: Type.String(),
  env_names: Type.Array(Type.String()),
  tools: orNull(Type.Array(Type.String())),
  created_at: time,
  expires_at: orNull(time),
  revoked_at: orNull(time),
})
export const Keys = listOf(Key)
export const KeyWithSecret = Type.Object({
  ...Key.properties,
  secret: Type.String({ description: 'Shown this once.' }),
})

export const Profile = Type.Object({
  name: Type.String(),
  settings: Type.Unsafe<object>({ type: 'object' }),
  env_names: Type.Array(Type.String()),
  created_at: time,
  updated_at: time,
})
export const Profiles = listOf(Profile)

export const Usage = Type.Object({
  data: Type.Array(
    Type.Object({
      day: Type.String(),
      key_id: Type.String(),
      runs: Type.Integer(),
      run_seconds: Type.Number(),
      cpu_seconds: Type.Number(),
    }),
  ),
})

const ToolSwitchProperties = { name: Type.String(), shown: Type.Boolean() }
export const ToolSwitch = Type.Object(ToolSwitchProperties)
export const ToolSwitches = Type.Object({ data: Type.Array(Type.Object(ToolSwitchProperties)) })

export const Token = Type.Object({
  id: Type.String(),
  name: Type.String(),
  role: Type.String(),
  org_id: orNull(Type.String()),
  prefix: Type.String(),
  created_at: time,
  expires_at: orNull(time),
  revoked_at: orNull(time),
})
export const Tokens = listOf(Token)
export const TokenWithSecret = Type.Object({
  ...Token.properties,
  secret: Type.String({ description: 'Shown this once.' }),
})

export const Limits = Type.Object({
  runs_per_minute: Type.Optional(Type.Integer()),
  concurrent_runs: Type.Optional(Type.Integer()),
  run_seconds_per_day: Type.Optional(Type.Integer()),
  storage_bytes: Type.Optional(Type.Integer()),
})
