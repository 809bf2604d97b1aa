import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { freePort, type Glovebox, Place } from '../support/glovebox.ts'
import { newKey, type OwnKey } from '../support/keys.ts'

const place = new Place()
let server: Glovebox
let key: OwnKey
beforeAll(async () => {
  server = await place.start('--no-dev', '--port', `${await freePort()}`)
  key = await newKey(place)
}, 60_000)
afterAll(() => place.remove())

/** Runs a shell line as a reader of the compatible product documentation types it. */
async function shell(line: string): Promise<string> {
  const own = line.replaceAll('https://api.baponi.ai', server.url).replaceAll('sk-us-YOUR_API_KEY', key.secret)
  const child = spawn('bash', ['-c', own], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [stdout, [code]] = await Promise.all([text(child.stdout), once(child, 'exit')])
  expect([own, code]).toEqual([own, 0])
  return stdout
}

const rpc = async (body: string) => {
  const line = `curl -s -X POST https://api.baponi.ai/mcp \\
  -H "Authorization: Bearer sk-us-YOUR_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '${body}'`
  return JSON.parse(await shell(line)) as { id: number; result: Record<string, unknown> }
}

describe('the documented curl session', () => {
  it('initializes as documented, though initialization is optional', async () => {
    const { id, result } = await rpc(`{
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
      "protocolVersion": "2025-11-25",
      "capabilities": {},
      "clientInfo": {"name": "curl-example", "version": "1.0"}
    }
  }`)
    expect([id, result.protocolVersion]).toEqual([1, '2025-11-25'])
  })

  it('lists the tools that it uses later', async () => {
    const { result } = await rpc(`{
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/list"
  }`)
    const names = (result.tools as { name: string }[]).map(({ name }) => name)
    expect(names).toEqual(expect.arrayContaining(['sandbox_execute', 'files_download']))
  })

  it('runs code on a thread, and downloads the file that it wrote', async () => {
    const ran = await rpc(`{
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
  }`)
    expect(ran.result).toMatchObject({ isError: false, structuredContent: { stdout: 'Report written.\n' } })
    const file = await rpc(`{
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
  }`)
    expect(JSON.stringify(file.result)).toContain('latency_p99,45ms')
  })
})

describe('the same session over REST', () => {
  const rest = (path: string, rest = '') =>
    shell(`curl -s https://api.baponi.ai${path} -H "Authorization: Bearer sk-us-YOUR_API_KEY" ${rest}`)
  const asJson = "-H 'Content-Type: application/json'"

  it('runs code, gets the execution, lists it, and reads its output', async () => {
    const body = `'{"code": "print(sum(range(100)))", "language": "python", "metadata": {"case": "curl"}}'`
    const ran = JSON.parse(await rest('/v1/sandbox/execute', `${asJson} -d ${body}`)) as Record<string, unknown>
    expect(ran).toMatchObject({ success: true, stdout: '4950\n', stderr: '', exit_code: 0 })
    const id = String(ran.trace_id)
    expect(JSON.parse(await rest(`/v1/executions/${id}`))).toMatchObject({
      trace_id: id,
      status: 'success',
      exit_code: 0,
      stdout: '4950\n',
      error: null,
      delivery_mode: 'inline',
    })
    const listed = JSON.parse(await rest('/v1/executions', '-G -d metadata.case=curl -d limit=1')) as object
    expect(listed).toMatchObject({ data: [{ trace_id: id }], next_cursor: null })
    const lines = (await rest(`/v1/executions/${id}/output`, "-H 'Accept: application/x-ndjson'")).trim().split('\n')
    expect(lines.map((line) => JSON.parse(line) as { type: string; data?: string })).toMatchObject([
      { type: 'status', trace_id: id },
      { type: 'stdout', data: '4950\n' },
      { type: 'result', status: 'success' },
    ])
  })

  it('receives an explained refusal for an invalid request', async () => {
    const answer = await rest('/v1/sandbox/execute', `${asJson} -d '{"code": ""}' -w ' %{http_code}'`)
    expect(answer).toMatch(/"error":"validation_error".* 400$/)
    expect(await rest('/v1/executions/trc_a1b2c3d4', "-w ' %{http_code}'")).toMatch(/"error":"not_found".* 404$/)
  })
})
