import { Refusal } from '../../base/errors.ts'
import { type Watched, type WatchPlace, watch } from '../../core/admin/watch.ts'
import { startWriting } from '../answer.ts'
import { adminOperation, type Operation } from '../operation.ts'
import { adminGroup as group } from './orgs.ts'

export const watchOperations: readonly Operation[] = [
  adminOperation({
    id: 'watchChanges',
    method: 'GET',
    path: '/admin/v1/changes',
    group,
    summary: 'Follow the runs of all keys, and changes of sandboxes, keys and settings, as server-sent events',
    query: { after: 'The ID of the last event that was received; events since then are repeated if they are kept.' },
    answers: { 200: { mediaType: 'text/event-stream' } },
    refusals: [],
    handle: async ({ server: { closing }, context, admin, query, reply }) => {
      const after = placeOf(query.after)
      reply.header('content-type', 'text/event-stream').header('x-accel-buffering', 'no')
      const writer = startWriting(reply)
      writer.keepAlive(':\n\n')
      // So that the reader knows at once that it is connected.
      await writer.write(':\n\n')
      const isOver = () => writer.gone || closing.aborted || reply.request.login?.hasEnded === true
      for await (const { watched, place } of watch(context, admin, after, isOver))
        if (watched !== 'idle') await writer.write(toEvent(watched, place))
      writer.end()
      return undefined
    },
  }),
]

/** Reads the ID of an event: `12-345`. @throws Refusal invalid_argument. */
function placeOf(id: string | undefined): WatchPlace | undefined {
  if (id === undefined || id === '') return undefined
  const [, run, audit] = /^(\d{1,15})-(\d{1,15})$/.exec(id) ?? []
  if (run === undefined)
    throw new Refusal('invalid_argument', { field: 'after', problem: 'must be the ID of an event' })
  return { run: Number(run), audit: Number(audit) }
}

function toEvent(watched: Exclude<Watched, 'idle'>, { run, audit }: WatchPlace): string {
  const id = `id: ${run}-${audit}\n`
  if (watched === 'missed') return `${id}event: reset\ndata: {}\n\n`
  if ('run' in watched) {
    const { runId, orgId, keyId, change } = watched.run
    return `${id}data: ${JSON.stringify({ trace_id: runId, org_id: orgId, key_id: keyId, change })}\n\n`
  }
  const { action, target, orgId, actor } = watched.action
  return `${id}event: action\ndata: ${JSON.stringify({ action, target, org_id: orgId, actor })}\n\n`
}
