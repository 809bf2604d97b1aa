import { MCPClient } from 'mcp-use/client'
import { endless, headers, receive, report, stream, task } from './client.mjs'

const client = new MCPClient({ mcpServers: { glovebox: { url: task.url, headers } } })
const session = await client.createSession('glovebox')
const tools = (await session.listTools()).map(({ name }) => name)
const results = await receive((tool, args) => session.callTool(tool, args))

let streamed = ''
await session.callTool('sandbox_execute', stream, { onprogress: ({ message }) => (streamed += message) })
const stop = new AbortController()
const options = { onprogress: () => stop.abort(), signal: stop.signal }
await session.callTool('sandbox_execute', endless, options).catch(() => undefined)
// The cancellation is sent in the background; the next request is answered after it.
await session.listTools()
await client.closeAllSessions()
report({ tools, results, streamed })
