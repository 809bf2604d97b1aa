/** The protocols that clients speak with their models. Each type has only the fields that are read or written here. */
import { randomUUID } from 'node:crypto'
import { offeredName, type Part, type Received, type Reply, type ToolCall, type Wire } from './scripted-model.ts'

const events = (all: readonly { type: string }[]) => ({
  contentType: 'text/event-stream',
  body: all.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(''),
})

const callsOf = (reply: Reply): readonly ToolCall[] => ('calls' in reply ? reply.calls : [])
const text = (value: string): Part => ({ type: 'text', text: value })

type AnthropicContent = string | AnthropicBlock[]

interface AnthropicBlock {
  type: string
  text?: string
  source?: { media_type: string; data: string }
  content?: AnthropicContent
  is_error?: boolean
}

interface AnthropicRequest {
  tools?: { name: string }[]
  messages: { role: string; content: AnthropicContent }[]
}

const anthropicParts = (content: AnthropicContent = []): Part[] =>
  typeof content === 'string'
    ? [text(content)]
    : content.map(({ source, text: words, ...rest }) =>
        source
          ? { type: 'image', mimeType: source.media_type, data: source.data }
          : text(words ?? JSON.stringify(rest)),
      )

/** https://docs.claude.com/en/api/messages */
const anthropic: Wire = {
  path: /^\/v1\/messages(\?|$)/,
  read: (body) => {
    const { tools = [], messages } = body as AnthropicRequest
    const blocks = messages.flatMap(({ content }) => (typeof content === 'string' ? [] : content))
    const results = blocks
      .filter(({ type }) => type === 'tool_result')
      .map(({ content, is_error }): Received => ({ isError: is_error === true, parts: anthropicParts(content) }))
    return { tools: tools.map(({ name }) => name), results }
  },
  write: (reply, conversation) => {
    const calls = callsOf(reply)
    const blocks = calls.map((call) => ({
      block: { type: 'tool_use', id: `toolu_${randomUUID()}`, name: offeredName(conversation, call), input: {} },
      delta: { type: 'input_json_delta', partial_json: JSON.stringify(call.arguments) },
    }))
    const words = { block: { type: 'text', text: '' }, delta: { type: 'text_delta', text: 'done' } }
    const content = blocks.length > 0 ? blocks : [words]
    const usage = { input_tokens: 1, output_tokens: 1 }
    const stopReason = calls.length > 0 ? 'tool_use' : 'end_turn'
    return events([
      {
        type: 'message_start',
        message: { id: `msg_${randomUUID()}`, type: 'message', role: 'assistant', model: 'm', content: [], usage },
      },
      ...content.flatMap(({ block, delta }, index) => [
        { type: 'content_block_start', index, content_block: block },
        { type: 'content_block_delta', index, delta },
        { type: 'content_block_stop', index },
      ]),
      { type: 'message_delta', delta: { stop_reason: stopReason, stop_sequence: null }, usage },
      { type: 'message_stop' },
    ] as { type: string }[])
  },
}

interface ResponsesTool {
  type: string
  name?: string
  tools?: { name: string }[]
}

interface ResponsesItem {
  type: string
  output?: string | { type: string; text?: string; image_url?: string }[]
}

interface ResponsesRequest {
  stream?: boolean
  tools?: ResponsesTool[]
  input: string | ResponsesItem[]
}

/** Reads an image from `data:image/png;base64,…`. */
function dataImage(url: string): Part {
  const [, mimeType = '', data = ''] = /^data:([^;]+);base64,(.*)$/s.exec(url) ?? []
  return { type: 'image', mimeType, data }
}

const responsesParts = (output: ResponsesItem['output'] = []): Part[] =>
  typeof output === 'string'
    ? [text(output)]
    : output.map((part) => (part.image_url ? dataImage(part.image_url) : text(part.text ?? JSON.stringify(part))))

/** Tools of a namespace are named `namespace.name`. https://platform.openai.com/docs/api-reference/responses */
const responses: Wire = {
  path: /\/responses(\?|$)/,
  read: (body) => {
    const { tools = [], input } = body as ResponsesRequest
    const items = typeof input === 'string' ? [] : input
    return {
      tools: tools.flatMap(({ name = '', tools: inner }) =>
        inner ? inner.map((tool) => `${name}.${tool.name}`) : [name],
      ),
      results: items
        .filter(({ type }) => type === 'function_call_output')
        .map(({ output }): Received => ({ parts: responsesParts(output) })),
    }
  },
  write: (reply, conversation, body) => {
    const calls = callsOf(reply).map((call) => {
      const [name, namespace] = (offeredName(conversation, call) ?? '').split('.').reverse()
      const id = randomUUID()
      const args = JSON.stringify(call.arguments)
      return { type: 'function_call', id: `fc_${id}`, call_id: `call_${id}`, name, namespace, arguments: args }
    })
    const content = [{ type: 'output_text', text: 'done', annotations: [] }]
    const message = { type: 'message', id: `msg_${randomUUID()}`, role: 'assistant', status: 'completed', content }
    const output = calls.length > 0 ? calls : [message]
    const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 }
    const response = { id: `resp_${randomUUID()}`, object: 'response', status: 'completed', output, usage }
    if ((body as ResponsesRequest).stream !== true)
      return { contentType: 'application/json', body: JSON.stringify(response) }
    return events([
      { type: 'response.created', response: { ...response, status: 'in_progress', output: [] } },
      ...output.map((item, index) => ({ type: 'response.output_item.done', output_index: index, item })),
      { type: 'response.completed', response },
    ] as { type: string }[])
  },
}

interface GeminiPart {
  functionResponse?: { response?: Record<string, unknown>; parts?: GeminiPart[] }
  inlineData?: { mimeType: string; data: string }
  text?: string
}

interface GeminiRequest {
  tools?: { functionDeclarations?: { name: string }[] }[]
  contents: { role: string; parts: GeminiPart[] }[]
}

const geminiImage = ({ inlineData }: GeminiPart): Part[] =>
  inlineData ? [{ type: 'image', mimeType: inlineData.mimeType, data: inlineData.data }] : []

function geminiResults(parts: readonly GeminiPart[]): Received[] {
  const answers = parts.flatMap(({ functionResponse }) => (functionResponse ? [functionResponse] : []))
  return answers.map(({ response = {}, parts: nested = [] }, index) => {
    const words = response.error ?? response.output ?? response
    return {
      isError: 'error' in response,
      parts: [
        text(typeof words === 'string' ? words : JSON.stringify(words)),
        ...nested.flatMap(geminiImage),
        // Beside several answers it cannot be told to which one an image belongs.
        ...(index === answers.length - 1 ? parts.flatMap(geminiImage) : []),
      ],
    }
  })
}

/** https://ai.google.dev/api/generate-content */
const gemini: Wire = {
  path: /:(streamG|g)enerateContent(\?|$)/,
  read: (body) => {
    const { tools = [], contents } = body as GeminiRequest
    return {
      tools: tools.flatMap(({ functionDeclarations = [] }) => functionDeclarations.map(({ name }) => name)),
      results: contents.flatMap(({ parts }) => geminiResults(parts)),
    }
  },
  write: (reply, conversation) => {
    const calls = callsOf(reply).map((call) => ({
      functionCall: { id: randomUUID(), name: offeredName(conversation, call), args: call.arguments },
    }))
    const parts = calls.length > 0 ? calls : [{ text: 'done' }]
    const answer = { candidates: [{ index: 0, content: { role: 'model', parts }, finishReason: 'STOP' }] }
    return { contentType: 'text/event-stream', body: `data: ${JSON.stringify(answer)}\n\n` }
  },
}

interface ChatRequest {
  stream?: boolean
  tools?: { function: { name: string } }[]
  messages: { role: string; content: string | { type: string; text?: string; image_url?: { url: string } }[] }[]
}

/** Images of a tool arrive in a message of the user after it. https://platform.openai.com/docs/api-reference/chat */
const chat: Wire = {
  path: /\/chat\/completions(\?|$)/,
  read: (body) => {
    const { tools = [], messages } = body as ChatRequest
    const results: { parts: Part[] }[] = []
    for (const { role, content } of messages) {
      const parts =
        typeof content === 'string'
          ? [text(content)]
          : (content ?? []).map((part) => (part.image_url ? dataImage(part.image_url.url) : text(part.text ?? '')))
      if (role === 'tool') results.push({ parts })
      else if (role === 'user') results.at(-1)?.parts.push(...parts)
    }
    return { tools: tools.map((tool) => tool.function.name), results }
  },
  write: (reply, conversation, body) => {
    const calls = callsOf(reply).map((call, index) => ({
      index,
      id: `call_${randomUUID()}`,
      type: 'function',
      function: { name: offeredName(conversation, call), arguments: JSON.stringify(call.arguments) },
    }))
    const message = calls.length > 0 ? { content: null, tool_calls: calls } : { content: 'done' }
    const said = { role: 'assistant', ...message }
    const choice = { index: 0, finish_reason: calls.length > 0 ? 'tool_calls' : 'stop' }
    const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
    const head = { id: 'chatcmpl-1', created: 1, model: 'scripted', usage }
    if ((body as ChatRequest).stream === true) {
      const chunk = { ...head, object: 'chat.completion.chunk', choices: [{ ...choice, delta: said }] }
      return { contentType: 'text/event-stream', body: `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n` }
    }
    const answer = { ...head, object: 'chat.completion', choices: [{ ...choice, message: said }] }
    return { contentType: 'application/json', body: JSON.stringify(answer) }
  },
}

export const wires: readonly Wire[] = [anthropic, responses, gemini, chat]
