import Type, { type TObject, type TSchema } from 'typebox'
import { ErrorBody, oneOf, union } from '../schemas.ts'
import { Image } from './execution.ts'

const seq = Type.Integer({
  minimum: 0,
  description: 'Position in the output of the run; pass it as `after` to resume.',
})

const common = [
  Type.Object(
    { type: oneOf(['status']), seq, status: oneOf(['running']), trace_id: Type.String() },
    { title: 'StatusLine', description: 'The first line.' },
  ),
  Type.Object(
    {
      type: oneOf(['stdout', 'stderr']),
      seq,
      data: Type.Optional(Type.String({ description: 'Absent with encoding=base64.' })),
      data_base64: Type.Optional(Type.String({ description: 'With encoding=base64.' })),
    },
    { title: 'OutputLine' },
  ),
  Type.Object(
    { type: oneOf(['gap']), seq, stream: oneOf(['stdout', 'stderr']), bytes: Type.Integer({ minimum: 0 }) },
    { title: 'GapLine', description: 'Output that was omitted.' },
  ),
  Type.Object({ type: oneOf(['image']), seq: Type.Optional(seq), ...Image.properties }, { title: 'ImageLine' }),
  Type.Object({ type: oneOf(['heartbeat']) }, { title: 'HeartbeatLine', description: 'Sent after every silence.' }),
  Type.Object(
    { type: oneOf(['error']), ...ErrorBody.properties },
    { title: 'ErrorLine', description: 'The last line where the stream failed.' },
  ),
]

/**
 * Describes one line of a stream of output.
 * @param name of the schema.
 * @param result the execution in the last line.
 */
export function lineSchema(name: string, result: TObject): TSchema {
  const last = Type.Object(
    { type: oneOf(['result']), seq: Type.Optional(seq), ...result.properties },
    { title: `${name}Result`, description: 'The last line: the execution.' },
  )
  return union(name, 'type', 'One line.', [...common, last])
}
