import { MCPClient } from '@mastra/mcp'
import { endless, headers, receive, report, stream, task } from './client.mjs'

const server = { url: new URL(task.url), requestInit: { headers }, enableProgressTracking: true }
const client = new MCPClient({ servers: { glovebox: server } })
const tools = await client.listTools()
const call = (tool, args, context = {}) => tools[`glovebox_${tool}`].execute(args, context)
const results = await receive(call)

let [streamed, started] = ['', () => undefined]
await client.progress.onUpdate('glovebox', ({ message }) => {
  streamed += message
  started()
})
await call('sandbox_execute', stream)
const output = streamed
const stop = new AbortController()
started = () => stop.abort()
await call('sandbox_execute', endless, { abortSignal: stop.signal }).catch(() => undefined)
await client.disconnect()
report({ tools: Object.keys(tools), results, streamed: output })
