import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Transcript, toTranscript } from '../../src/core/runs/transcript.ts'
import { type Front, openFront, testProfile, threadsProfile } from '../support/front.ts'

let front: Front
beforeAll(async () => {
  front = await openFront(threadsProfile)
})
afterAll(() => front.close())

let ids = 0

interface Reply {
  status: number
  result: {
    isError: boolean
    content: { type: string; text: string; mimeType?: string }[]
    structuredContent: { stdout: string }
  }
  error: { code: number; message: string }
}

async function call(name: string, args: object, to = front): Promise<Reply> {
  ids += 1
  const message = { jsonrpc: '2.0', id: ids, method: 'tools/call', params: { name, arguments: args } }
  const response = await to.post('/mcp', message)
  return { status: response.status, ...((await response.json()) as Omit<Reply, 'status'>) }
}

const run = (code: string, threadId: string, language = 'bash') =>
  call('sandbox_execute', { code, language, thread_id: threadId })

const download = (id: string, path: string, source = 'thread') => call('files_download', { source, id, path })

const textOf = (reply: Reply) => reply.result.content[0]?.text

describe('a thread', () => {
  it('keeps the files of a call in the home directory, over MCP and REST alike', async () => {
    await run('echo kept >note', 'kept')
    const response = await front.post('/v1/sandbox/execute', { code: 'cat note', language: 'bash', thread_id: 'kept' })
    expect(await response.json()).toMatchObject({ success: true, stdout: 'kept\n' })
  })

  it('is a conflict with a hint while busy, until its run has ended', async () => {
    const going = run('sleep 1', 'busy')
    await expect.poll(() => front.store.threads.get('org_dev', 'busy').then((row) => row?.lockedBy)).toBeTruthy()
    const { begin } = front.store.runs
    let rows = 0
    front.store.runs.begin = (row) => {
      rows += 1
      return begin(row)
    }
    const overMcp = await run('true', 'busy')
    expect(overMcp).toMatchObject({ status: 409, error: { code: -32000 } })
    expect(overMcp.error.message).toMatch(/thread busy is busy.*(Wait|another thread_id)/)
    const overRest = await front.post('/v1/sandbox/execute', { code: 'true', language: 'bash', thread_id: 'busy' })
    expect(overRest.status).toBe(409)
    expect(await overRest.json()).toMatchObject({ error: 'conflict', message: expect.stringContaining('busy') })
    // A caller that retries until it is free leaves no row for each attempt.
    front.store.runs.begin = begin
    expect(rows).toBe(0)
    await going
    expect((await run('true', 'busy')).result.isError).toBe(false)
    expect(await front.store.threads.get('org_dev', 'busy')).toMatchObject({ lockedBy: null, lockedUntil: null })
  })

  it('is given to exactly one of fifty simultaneous first calls; the others receive thread_busy', async () => {
    const gate = join(mkdtempSync(join(tmpdir(), 'glovebox-gate-')), 'open')
    let answered = 0
    const calls = Array.from({ length: 50 }, () =>
      run(`until [ -e ${gate} ]; do sleep 0.05; done; echo once`, 'first').finally(() => answered++),
    )
    await expect.poll(() => answered, { timeout: 20_000 }).toBe(49)
    writeFileSync(gate, '')
    const replies = await Promise.all(calls)
    rmSync(dirname(gate), { recursive: true })
    const won = replies.filter(({ status }) => status === 200)
    expect(won).toHaveLength(1)
    expect(won[0]?.result.structuredContent.stdout).toBe('once\n')
    expect(replies.filter(({ status, error }) => status === 409 && error.code === -32000)).toHaveLength(49)
  })

  it('returns the result of the first call when the same call is repeated, and not a conflict', async () => {
    const code = 'sleep 0.5; echo x >>log; cat log'
    const request = { code, language: 'bash', threadId: 'repeated', detached: true, idempotencyKey: 'same' }
    const ask = async (): Promise<Transcript> => {
      let runId = ''
      for await (const event of front.core.execute(front.caller, request, new AbortController().signal)) {
        if (event.kind === 'accepted') runId = event.runId
        if (event.kind === 'ended' || event.kind === 'recorded') return toTranscript(runId, event.result, event.output)
      }
      throw new Error('the run has no ending')
    }
    const [first, second] = await Promise.all([ask(), ask()])
    expect([first.stdout.text, second.stdout.text]).toEqual(['x\n', 'x\n'])
    expect(first.runId).toBe(second.runId)
  })

  it('is free after a call that the runner rejected', async () => {
    front.runner.maxRuns = 0
    expect((await run('true', 'turned-away')).status).toBe(503)
    front.runner.maxRuns = 32
    expect((await run('true', 'turned-away')).status).toBe(200)
  })

  it('has a name that follows the rule in the error message', async () => {
    const reply = await run('true', '../x')
    expect(JSON.stringify(reply)).toContain('thread_id must be 1 to 128 letters')
  })
})

describe('files_download', () => {
  it('returns text unchanged, also SVG, whatever its name', async () => {
    await run('printf "a\\tb\\n" >t.csv; echo "<svg/>" >a.svg; : >empty; printf "\\xef\\xbb\\xbfbom" >bom.bin', 'text')
    for (const [path, text] of [
      ['t.csv', 'a\tb\n'],
      ['a.svg', '<svg/>\n'],
      ['empty', ''],
      ['./t.csv', 'a\tb\n'],
      ['bom.bin', '\ufeffbom'],
    ] as const) {
      expect((await download('text', path)).result).toEqual({ content: [{ type: 'text', text }], isError: false })
    }
  })

  it('keeps characters whole at every buffer boundary', async () => {
    const code = 'open("wide","w").write("x" * PAD + "€" * 200000)'
    for (const pad of [0, 1, 2]) {
      await run(code.replace('PAD', `${pad}`), 'wide', 'python')
      expect(textOf(await download('wide', 'wide'))).toBe('x'.repeat(pad) + '€'.repeat(200_000))
    }
  })

  it('returns images as images', async () => {
    const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABh6FO1AAAAABJRU5ErkJggg=='
    await run(
      `echo ${png} | base64 -d >plot.png; printf '\\xff\\xd8\\xff\\xe0\\0' >j; printf 'GIF89a\\0' >g; printf 'RIFF\\0\\0\\0\\0WEBPVP8 ' >w`,
      'images',
    )
    expect((await download('images', 'plot.png')).result.content).toEqual([
      { type: 'image', data: png, mimeType: 'image/png' },
    ])
    for (const [path, mimeType] of [
      ['j', 'image/jpeg'],
      ['g', 'image/gif'],
      ['w', 'image/webp'],
    ] as const) {
      expect((await download('images', path)).result.content[0]?.mimeType).toBe(mimeType)
    }
  })

  it('explains how to get files that are too large or binary, and names missing ones', async () => {
    const code =
      'truncate -s 1048577 large; truncate -s 1T sparse; head -c 1048576 /dev/zero | tr "\\0" a >fits; printf "\\0\\1" >bin; printf "caf\\xe9" >latin; mkdir d; mkfifo pipe; ln -s /etc/passwd link; ln -s . loop'
    await run(code, 'odd')
    for (const path of ['large', 'sparse', 'bin', 'latin']) {
      const { result } = await download('odd', path)
      expect(result.isError, path).toBe(false)
      expect(result.content[0]?.text, path).toContain('POST /v1/files/download')
    }
    for (const [path, words] of [
      ['gone', 'gone does not exist'],
      ['d', 'not a regular file but a directory'],
      ['pipe', 'not a regular file but a fifo'],
      ['link', 'not a regular file but a link'],
      ['loop/d', 'not a directory'],
    ] as const) {
      const { result } = await download('odd', path)
      expect(result?.isError, path).toBe(true)
      expect(result.content[0]?.text, path).toContain(words)
    }
    expect(textOf(await download('odd', 'fits'))).toHaveLength(1_048_576)
    expect((await download('nobody', 'x')).result.content[0]?.text).toContain('The thread nobody does not exist')
  })

  it('rejects paths outside the thread, and unknown sources', async () => {
    await run('true', 'paths')
    for (const path of ['/etc/passwd', '../x', 'a/../../x', 'a//b', '', 'a\0b', 'x'.repeat(300)]) {
      expect(JSON.stringify(await download('paths', path)), path).toMatch(/Invalid path/)
    }
    expect(JSON.stringify(await download('data', 'x', 'volume'))).toContain('The volume data does not exist')
    expect(JSON.stringify(await download('..', 'x'))).toContain('id must be 1 to 128 letters')
  })

  it('is not offered to a profile without storage', async () => {
    const without = await openFront(testProfile)
    try {
      const reply = await call('files_download', { source: 'thread', id: 'a', path: 'b' }, without)
      expect(reply.error.message).toContain('Unknown tool: files_download')
      const refused = await call('sandbox_execute', { code: 'x', thread_id: 'a' }, without)
      expect(JSON.stringify(refused)).toContain('has no storage')
    } finally {
      await without.close()
    }
  })
})
