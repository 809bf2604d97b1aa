import { setTimeout as sleep } from 'node:timers/promises'
import { Refusal } from '../../src/base/errors.ts'
import type { Tool, ToolContext } from '../../src/tools/tool.ts'
import { FixtureFailure, fixtureTool, form, text } from './fixture-tool.ts'

/** For tools that return tasks only. */
async function asTask({ toTask }: ToolContext): Promise<void> {
  if (!toTask) throw new Refusal('capability_missing', { capability: 'io.modelcontextprotocol/tasks' })
  await toTask()
}

const confirm = (message: string) => form(message, { confirm: { type: 'boolean' } })

/** Tools that become tasks. */
export const taskTools: readonly Tool[] = [
  fixtureTool('greet', 'Answers at once', ({ name }) => [text(`Hello, ${String(name)}!`)]),
  fixtureTool('slow_compute', 'Takes its time', async ({ seconds, label }, { toTask, signal }) => {
    await toTask?.()
    await sleep(Number(seconds ?? 0) * 1000, undefined, { signal })
    return [text(`computed ${String(label)}`)]
  }),
  fixtureTool('failing_job', 'Fails as a result', async (_given, context) => {
    await asTask(context)
    throw new FixtureFailure('the job failed')
  }),
  fixtureTool('protocol_error_job', 'Fails as an error', async (_given, context) => {
    await asTask(context)
    throw new Refusal('invalid_request', { problem: 'this job never works' })
  }),
  fixtureTool('confirm_delete', 'Asks once', async ({ filename }, context) => {
    await asTask(context)
    const { confirmed } = await context.ask({ confirmed: confirm(`Delete ${String(filename)}?`) })
    return [text(`answered with ${String(confirmed?.action)}`)]
  }),
  fixtureTool('multi_input', 'Asks for two things at once', async (_given, context) => {
    await asTask(context)
    const answers = await context.ask({ first: confirm('First?'), second: confirm('Second?') })
    return [text(Object.keys(answers).join(', '))]
  }),
  fixtureTool('test_tool_with_task', 'Asks before it becomes a task', async (_given, context) => {
    const { user_name } = await context.ask({ user_name: form('What is your name?', { name: { type: 'string' } }) })
    await asTask(context)
    return [text(`Hello, ${JSON.stringify(user_name?.content)}`)]
  }),
]
