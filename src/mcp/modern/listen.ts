import { Refusal } from '../../base/errors.ts'
import type { Change } from '../changes.ts'
import { metaKey } from '../era.ts'
import type { McpContext, McpReply } from '../handle.ts'
import { isObject, notificationText, own, type Params, type RequestId, resultText } from '../json-rpc.ts'
import type { Stamp } from './codec.ts'
import type { Envelope } from './envelope.ts'
import { describeTask, tasksExtension } from './tasks.ts'

/** What a client asked to hear of, and will: https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/subscriptions */
interface Agreed {
  toolsListChanged?: true
  promptsListChanged?: true
  resourcesListChanged?: true
  resourceSubscriptions?: readonly string[]
  taskIds?: readonly string[]
}

/** More than one client can mean; each is looked up. */
const maxNames = 64
/** Told and not yet read; a client that is further behind starts anew. */
const maxWaiting = 256

/**
 * Tells a client of changes until it leaves or this process is about to end.
 * @throws Refusal `invalid_argument`, `capability_missing`.
 */
export async function listen(
  { id, params }: { id: RequestId; params: Params },
  envelope: Envelope,
  stamp: Stamp,
  context: McpContext,
): Promise<McpReply> {
  const agreed = await agree(params, envelope, context)
  return { kind: 'stream', messages: tell(id, agreed, stamp, context) }
}

async function agree(params: Params, { client }: Envelope, context: McpContext): Promise<Agreed> {
  const wanted = own(params, 'notifications')
  if (!isObject(wanted)) throw new Refusal('invalid_argument', { field: 'notifications', problem: 'must be an object' })
  const { kinds } = context.changes
  const uris = names(wanted, 'resourceSubscriptions')
  const taskIds = names(wanted, 'taskIds')
  if (taskIds && !client.hasExtension(tasksExtension)) {
    throw new Refusal('capability_missing', { capability: tasksExtension })
  }
  return {
    ...(own(wanted, 'toolsListChanged') === true && kinds.tools && { toolsListChanged: true as const }),
    ...(own(wanted, 'promptsListChanged') === true && kinds.prompts && { promptsListChanged: true as const }),
    ...(own(wanted, 'resourcesListChanged') === true && kinds.resources && { resourcesListChanged: true as const }),
    ...(uris && kinds.resource && { resourceSubscriptions: uris }),
    ...(taskIds && { taskIds: await ownTasks(taskIds, context) }),
  }
}

function names(wanted: Params, field: string): string[] | undefined {
  const given = own(wanted, field)
  if (given === undefined) return undefined
  const valid = Array.isArray(given) && given.length <= maxNames && given.every((name) => typeof name === 'string')
  if (valid) return [...new Set(given as string[])]
  throw new Refusal('invalid_argument', {
    field: `notifications.${field}`,
    problem: `must be a list of at most ${maxNames} strings`,
  })
}

/** Those that this caller could also ask for. */
async function ownTasks(ids: readonly string[], { core, caller }: McpContext): Promise<string[]> {
  const known = await Promise.all(
    ids.map((id) =>
      core.tasks.get(caller, id).then(
        () => [id],
        (error: unknown) => {
          if (error instanceof Refusal) return []
          throw error
        },
      ),
    ),
  )
  return known.flat()
}

async function* tell(
  id: RequestId,
  agreed: Agreed,
  stamp: Stamp,
  context: McpContext,
): AsyncGenerator<string, void, undefined> {
  const { changes, gone, closing } = context
  const subscription = { [metaKey('subscriptionId')]: id }
  const waiting: Change[] = []
  let wake = () => {}
  const stop = changes.listen((change) => {
    if (isAgreed(change, agreed) && waiting.push(change) > maxWaiting) waiting.shift()
    wake()
  })
  const ended = AbortSignal.any([gone(), closing])
  ended.addEventListener('abort', () => wake(), { once: true })
  try {
    const notifications = agreed as object
    yield notificationText('notifications/subscriptions/acknowledged', { notifications, _meta: subscription })
    while (!ended.aborted) {
      const change = waiting.shift()
      if (change) yield await toNotification(change, subscription, context)
      else {
        await new Promise<void>((resolve) => {
          wake = resolve
          if (ended.aborted) resolve()
        })
      }
    }
    if (!gone().aborted) yield resultText(id, stamp.complete({ _meta: subscription }))
  } finally {
    stop()
  }
}

function isAgreed(change: Change, agreed: Agreed): boolean {
  switch (change.kind) {
    case 'tools':
      return agreed.toolsListChanged === true
    case 'prompts':
      return agreed.promptsListChanged === true
    case 'resources':
      return agreed.resourcesListChanged === true
    case 'resource':
      return agreed.resourceSubscriptions?.includes(change.uri) === true
    case 'task':
      return agreed.taskIds?.includes(change.taskId) === true
  }
}

async function toNotification(change: Change, _meta: object, context: McpContext): Promise<string> {
  switch (change.kind) {
    case 'tools':
    case 'prompts':
    case 'resources':
      return notificationText(`notifications/${change.kind}/list_changed`, { _meta })
    case 'resource':
      return notificationText('notifications/resources/updated', { uri: change.uri, _meta })
    case 'task':
      return notificationText('notifications/tasks', { ...(await describeTask(change.taskId, context)), _meta })
  }
}
