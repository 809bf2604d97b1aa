import Type from 'typebox'
import { failureReasons } from '../../base/run.ts'
import { oneOf, union } from '../schemas.ts'

const limitBytes = Type.Integer({ minimum: 0, description: 'The limit that was reached.' })

/** How a run ended, one object per kind. */
export const EndingSchema = union('Ending', 'kind', 'How the run ended.', [
  Type.Object({ kind: oneOf(['exited']), code: Type.Integer() }, { title: 'Exited' }),
  Type.Object(
    { kind: oneOf(['signaled']), signal: Type.String({ description: 'Without SIG.' }) },
    { title: 'Signaled' },
  ),
  Type.Object(
    { kind: oneOf(['timed_out']), limit_ms: Type.Number({ minimum: 0, description: 'The time limit.' }) },
    { title: 'TimedOut' },
  ),
  Type.Object(
    {
      kind: oneOf(['out_of_memory']),
      limit_bytes: limitBytes,
      held_as: Type.Optional(
        Type.String({ description: '`socket_buffers` where those held what is beyond the limit.' }),
      ),
    },
    { title: 'OutOfMemory' },
  ),
  Type.Object({ kind: oneOf(['output_limit']), limit_bytes: limitBytes }, { title: 'OutputLimitReached' }),
  Type.Object(
    {
      kind: oneOf(['disk_quota']),
      limit_bytes: limitBytes,
      disk: Type.Optional(Type.String({ description: '`server` where the disk of the server was nearly full.' })),
    },
    { title: 'DiskQuotaReached' },
  ),
  Type.Object({ kind: oneOf(['cancelled']) }, { title: 'Cancelled' }),
  Type.Object({ kind: oneOf(['shutdown']) }, { title: 'ShutDown' }),
  Type.Object({ kind: oneOf(['failed']), reason: oneOf(failureReasons) }, { title: 'Failed' }),
])
