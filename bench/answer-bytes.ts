/** Prints how many bytes the answers over MCP have: `node bench/answer-bytes.ts`. Counts need no repetition. */
import { GloveboxServer } from './glovebox-server.ts'

const calls: readonly [name: string, method: string, params: object][] = [
  ['tools/list', 'tools/list', {}],
  ['print(6*7)', 'tools/call', run('print(6*7)')],
  ['20,000 lines', 'tools/call', run('for n in range(20000): print("line", n, "of the output")')],
  ['an exception', 'tools/call', run('raise ValueError("no")')],
]

function run(code: string): object {
  return { name: 'sandbox_execute', arguments: { code, language: 'python' } }
}

const server = await GloveboxServer.start([])
try {
  console.log('| answer | bytes | of them content | with ?structured=true |')
  console.log('|---|--:|--:|--:|')
  for (const [name, method, params] of calls) {
    const text = await ask('/mcp?structured=false', method, params)
    const { result } = JSON.parse(text) as { result: { content?: { text?: string }[] } }
    const content = result.content?.[0]?.text?.length ?? ''
    const structured = await ask('/mcp?structured=true', method, params)
    console.log(`| ${name} | ${Buffer.byteLength(text)} | ${content} | ${Buffer.byteLength(structured)} |`)
  }
} finally {
  await server.stop()
}

async function ask(path: string, method: string, params: object): Promise<string> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  const headers = { 'content-type': 'application/json' }
  return (await fetch(server.url + path, { method: 'POST', headers, body })).text()
}
