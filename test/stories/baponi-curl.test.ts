/** What someone has who wrote for Baponi: its examples as they are, but for host and key. */
import { execFileSync } from 'node:child_process'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Glovebox, Place } from '../support/glovebox.ts'
import { newKey } from '../support/keys.ts'

const place = new Place()
let server: Glovebox
let key: string
beforeAll(async () => {
  server = await place.start('--no-dev', '--limit-thread', '64MiB', '--storage-reserve', '0')
  key = (await newKey(place)).secret
}, 60_000)
afterAll(() => place.remove())

/** Runs a command line of the page. */
function shell(command: string): { result: Record<string, never> } {
  const own = command.replaceAll('https://api.baponi.ai', server.url).replaceAll('sk-us-YOUR_API_KEY', key)
  return JSON.parse(execFileSync('bash', ['-c', own], { encoding: 'utf8' }))
}

describe('a session with curl', () => {
  it('begins, where the client wants to', () => {
    expect(
      shell(`curl -s -X POST https://api.baponi.ai/mcp \\
  -H "Authorization: Bearer sk-us-YOUR_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
      "protocolVersion": "2025-11-25",
      "capabilities": {},
      "clientInfo": {"name": "curl-example", "version": "1.0"}
    }
  }'`),
    ).toMatchObject({ id: 1, result: { protocolVersion: '2025-11-25' } })
  })

  it('lists the tools', () => {
    const { result } = shell(`curl -s -X POST https://api.baponi.ai/mcp \\
  -H "Authorization: Bearer sk-us-YOUR_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/list"
  }'`)
    expect(JSON.stringify(result)).toContain('"sandbox_execute"')
    expect(JSON.stringify(result)).toContain('"files_download"')
  })

  it('executes code with a thread, and downloads the file that it wrote', () => {
    const executed = shell(`curl -s -X POST https://api.baponi.ai/mcp \\
  -H "Authorization: Bearer sk-us-YOUR_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{
    "jsonrpc": "2.0",
    "id": 3,
    "method": "tools/call",
    "params": {
      "name": "sandbox_execute",
      "arguments": {
        "code": "import csv\\nwith open(\\"/home/baponi/report.csv\\", \\"w\\") as f:\\n    w = csv.writer(f)\\n    w.writerow([\\"metric\\", \\"value\\"])\\n    w.writerow([\\"latency_p50\\", \\"12ms\\"])\\n    w.writerow([\\"latency_p99\\", \\"45ms\\"])\\nprint(\\"Report written.\\")",
        "language": "python",
        "thread_id": "demo-thread-1"
      }
    }
  }'`)
    expect(executed).toMatchObject({ id: 3, result: { isError: false } })
    expect(JSON.stringify(executed)).toContain('Report written.')
    const downloaded = shell(`curl -s -X POST https://api.baponi.ai/mcp \\
  -H "Authorization: Bearer sk-us-YOUR_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{
    "jsonrpc": "2.0",
    "id": 4,
    "method": "tools/call",
    "params": {
      "name": "files_download",
      "arguments": {
        "source": "thread",
        "id": "demo-thread-1",
        "path": "report.csv"
      }
    }
  }'`)
    expect(downloaded).toMatchObject({
      id: 4,
      result: { content: [{ type: 'text', text: 'metric,value\r\nlatency_p50,12ms\r\nlatency_p99,45ms\r\n' }] },
    })
  })
})
