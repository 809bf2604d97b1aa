/** The upstream of every contender, over HTTP and as a program: both answer at once, without a library. */

const results: Readonly<Record<string, object>> = {
  initialize: {
    protocolVersion: '2025-11-25',
    capabilities: { tools: {} },
    serverInfo: { name: 'echo', version: '1' },
  },
  'tools/call': { content: [{ type: 'text', text: 'x' }], isError: false },
  'tools/list': { tools: [{ name: 'instant', inputSchema: { type: 'object' } }] },
}

/** Returns the answer to a message; `undefined` for a notification. */
export function answerOf(text: string): string | undefined {
  const { id, method } = JSON.parse(text) as { id?: unknown; method?: string }
  if (id === undefined) return undefined
  return JSON.stringify({ jsonrpc: '2.0', id, result: results[method ?? ''] ?? {} })
}

/** The same as the source of a program for `node --eval`. */
export const echoProgram = `
const results = ${JSON.stringify(results)}
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line)
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result: results[method] ?? {} }))
})
`
