import { Refusal } from '../../base/errors.ts'
import type { Change } from '../change-feed.ts'
import { openChangeStream } from '../change-stream.ts'
import { metaKey } from '../era.ts'
import type { McpContext, StreamReply } from '../handle.ts'
import { encodeNotification, encodeResult } from '../json-rpc/encode.ts'
import { own, type Params, type Request, type RequestId } from '../json-rpc/message.ts'
import { objectParam, stringListParam } from '../params.ts'
import type { ResultEncoder } from './encode.ts'
import type { Envelope } from './envelope.ts'
import { describeTask, requireTasks } from './tasks.ts'

/**
 * The notifications that a client requested and this server can send:
 * https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/subscriptions
 */
interface Subscription {
  toolsListChanged?: true
  promptsListChanged?: true
  resourcesListChanged?: true
  resourceSubscriptions?: readonly string[]
  taskIds?: readonly string[]
}

/** Resources or tasks of one subscription. Each task is looked up when the subscription starts. */
const maxNames = 64

/**
 * Answers `subscriptions/listen`: streams notifications until the client disconnects or this process shuts down.
 * @throws Refusal `invalid_argument`, `capability_missing`.
 */
export async function listen(
  { id, params }: Request,
  envelope: Envelope,
  encoder: ResultEncoder,
  context: McpContext,
): Promise<StreamReply> {
  const subscription = await toSubscription(params, envelope, context)
  return { kind: 'stream', messages: notifications(id, subscription, encoder, context) }
}

async function toSubscription(params: Params, envelope: Envelope, context: McpContext): Promise<Subscription> {
  const wanted = objectParam(params, 'notifications')
  const { kinds } = context.changes
  const uris = stringListParam(wanted, 'resourceSubscriptions', 'notifications.resourceSubscriptions', maxNames)
  const taskIds = stringListParam(wanted, 'taskIds', 'notifications.taskIds', maxNames)
  if (taskIds) requireTasks(envelope)
  return {
    ...(own(wanted, 'toolsListChanged') === true && kinds.tools && { toolsListChanged: true as const }),
    ...(own(wanted, 'promptsListChanged') === true && kinds.prompts && { promptsListChanged: true as const }),
    ...(own(wanted, 'resourcesListChanged') === true && kinds.resources && { resourcesListChanged: true as const }),
    ...(uris && kinds.resource && { resourceSubscriptions: uris }),
    ...(taskIds && { taskIds: await visibleTasks(taskIds, context) }),
  }
}

/** Returns the ids of the tasks that this caller can read. */
async function visibleTasks(ids: readonly string[], { core, caller }: McpContext): Promise<string[]> {
  const visible = await Promise.all(
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
  return visible.flat()
}

async function* notifications(
  id: RequestId,
  subscription: Subscription,
  encoder: ResultEncoder,
  context: McpContext,
): AsyncGenerator<string, void, undefined> {
  const meta = { [metaKey('subscriptionId')]: id }
  const stream = openChangeStream(context, (change) => (includes(subscription, change) ? change : undefined))
  try {
    const acknowledged = { notifications: subscription, _meta: meta }
    yield encodeNotification('notifications/subscriptions/acknowledged', acknowledged)
    for await (const change of stream.items) yield await toNotification(change, meta, context)
    if (!context.disconnected().aborted) yield encodeResult(id, encoder.complete({ _meta: meta }))
  } finally {
    stream.close()
  }
}

function includes(subscription: Subscription, change: Change): boolean {
  switch (change.kind) {
    case 'tools':
      return subscription.toolsListChanged === true
    case 'prompts':
      return subscription.promptsListChanged === true
    case 'resources':
      return subscription.resourcesListChanged === true
    case 'resource':
      return subscription.resourceSubscriptions?.includes(change.uri) === true
    case 'task':
      return subscription.taskIds?.includes(change.taskId) === true
  }
}

async function toNotification(change: Change, _meta: object, context: McpContext): Promise<string> {
  switch (change.kind) {
    case 'tools':
    case 'prompts':
    case 'resources':
      return encodeNotification(`notifications/${change.kind}/list_changed`, { _meta })
    case 'resource':
      return encodeNotification('notifications/resources/updated', { uri: change.uri, _meta })
    case 'task':
      return encodeNotification('notifications/tasks', { ...(await describeTask(change.taskId, context)), _meta })
  }
}
