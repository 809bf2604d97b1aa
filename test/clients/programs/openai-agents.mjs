/** An agent whose model is the scripted one; the test reads there what the model received. */
import { Agent, MCPServerStreamableHttp, OpenAIResponsesModel, run, setTracingDisabled } from '@openai/agents'
import OpenAI from 'openai'
import { headers, report, task } from './client.mjs'

setTracingDisabled(true)
const server = new MCPServerStreamableHttp({ name: 'glovebox', url: task.url, requestInit: { headers } })
await server.connect()
const openai = new OpenAI({ baseURL: `${task.modelUrl}/v1`, apiKey: 'none' })
const model = new OpenAIResponsesModel(openai, 'scripted')
const agent = new Agent({ name: 'agent', instructions: 'Run it.', model, mcpServers: [server] })
const { finalOutput } = await run(agent, 'run it', { maxTurns: 20 })
await server.close()
report({ finalOutput })
