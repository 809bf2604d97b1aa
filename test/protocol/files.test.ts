import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { pull, push } from '../../src/cli/transfer.ts'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey, revokeKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { type Front, openFront, testProfile, threadsProfile } from '../support/front.ts'

let front: Front
let headers: Record<string, string>
let org: string

beforeAll(async () => {
  front = await openFront(threadsProfile, { dev: false, trustedProxies: ['127.0.0.1'] })
  ;({ id: org } = await createOrg(front.core.adminContext, operator, 'files'))
  headers = { 'x-api-key': (await createKey(front.core.adminContext, operator, org, {}, [])).secret }
})
afterAll(() => front.close())

interface Answer {
  status: number
  body: {
    url: string
    method: string
    message: string
    deleted: number
    next_cursor: string | null
    files: { name: string; path: string; size: number; modified: string; is_directory: boolean }[]
    headers: { name: string; value: string }[]
  }
}

async function ask(what: string, body: object, as = headers): Promise<Answer> {
  const response = await front.post(`/v1/files/${what}`, { source: 'thread', ...body }, as)
  return { status: response.status, body: (await response.json()) as Answer['body'] }
}

async function inThread(id: string, code: string): Promise<string> {
  const response = await front.post('/v1/sandbox/execute', { language: 'bash', code, thread_id: id }, headers)
  return ((await response.json()) as { stdout: string }).stdout
}

async function upload(id: string, path: string, content: string | Uint8Array<ArrayBuffer>): Promise<number> {
  const { body } = await ask('upload', { id, path, size: Buffer.byteLength(content) })
  return (await fetch(body.url, { method: 'PUT', body: content })).status
}

async function download(id: string, path: string, init: RequestInit = {}): Promise<Response> {
  const { body } = await ask('download', { id, path })
  return fetch(body.url, init)
}

describe('a signed link', () => {
  it('uploads and downloads a file without a key, byte for byte', async () => {
    await inThread('bytes', 'true')
    const bytes = Uint8Array.from({ length: 3_000_000 }, (_, n) => (n * 31) % 251)
    expect(await upload('bytes', 'new/directory/data.bin', bytes)).toBe(200)
    const answer = await download('bytes', 'new/directory/data.bin')
    expect(answer.status).toBe(200)
    expect(Buffer.from(await answer.arrayBuffer()).equals(Buffer.from(bytes))).toBe(true)
    expect(await inThread('bytes', 'stat -c %s new/directory/data.bin')).toBe('3000000\n')
  })

  it('creates the thread that it uploads to', async () => {
    expect(await upload('made-by-upload', 'a', 'text')).toBe(200)
    expect(await inThread('made-by-upload', 'cat a')).toBe('text')
  })

  it('is served as an attachment that no browser renders or runs', async () => {
    await inThread('page', 'echo "<script>" >page.html')
    const { headers: sent } = await download('page', 'page.html')
    expect(sent.get('content-disposition')).toBe('attachment; filename="page.html"')
    expect(sent.get('x-content-type-options')).toBe('nosniff')
    expect(sent.get('content-security-policy')).toBe("sandbox; default-src 'none'")
    expect(sent.get('content-type')).toBe('application/octet-stream')
  })

  it('supports every Unicode file name, and no name ends the header early', async () => {
    await inThread('names', 'true')
    for (const name of ['Grüße.txt', '数据 1.csv', '🦊', `it's "q".txt`, 'a\r\nb', '%41']) {
      expect([name, await upload('names', name, name)]).toEqual([name, 200])
      const answer = await download('names', name)
      expect(await answer.text()).toBe(name)
      const [, encoded = encodeURIComponent(name)] =
        /filename\*=UTF-8''(\S+)$/.exec(answer.headers.get('content-disposition') ?? '') ?? []
      expect(decodeURIComponent(encoded)).toBe(name)
    }
  })

  it('serves every requested range', async () => {
    await inThread('parts', 'printf 0123456789 >f')
    const parts: [string, number, string, string | null][] = [
      ['bytes=2-4', 206, '234', 'bytes 2-4/10'],
      ['bytes=7-', 206, '789', 'bytes 7-9/10'],
      ['bytes=-2', 206, '89', 'bytes 8-9/10'],
      ['bytes=5-99', 206, '56789', 'bytes 5-9/10'],
      ['bytes=4-2', 200, '0123456789', null],
      ['bytes=0-1,3-4', 200, '0123456789', null],
      ['lines=1-2', 200, '0123456789', null],
    ]
    for (const [range, status, text, contentRange] of parts) {
      const answer = await download('parts', 'f', { headers: { range } })
      expect([range, answer.status, await answer.text(), answer.headers.get('content-range')]).toEqual([
        range,
        status,
        text,
        contentRange,
      ])
    }
    const beyond = await download('parts', 'f', { headers: { range: 'bytes=10-' } })
    expect([beyond.status, beyond.headers.get('content-range')]).toEqual([416, 'bytes */10'])
    const head = await download('parts', 'f', { method: 'HEAD' })
    expect([head.status, head.headers.get('content-length'), await head.text()]).toEqual([200, '10', ''])
    const etag = head.headers.get('etag') ?? ''
    expect((await download('parts', 'f', { headers: { 'if-none-match': etag } })).status).toBe(304)
  })

  it('is rejected when modified, used for something else, expired, or after its key is revoked', async () => {
    await inThread('dead', 'echo x >f; echo y >g')
    const { body } = await ask('download', { id: 'dead', path: 'f', expires_in: 1 })
    const [signed = '', signature = ''] = (body.url.split('/').at(-1) ?? '').split('.')
    const forged = Buffer.from(Buffer.from(signed, 'base64url').toString().replace('"f"', '"g"')).toString('base64url')
    const wrong = [
      `${forged}.${signature}`,
      `${signed}.${'A'.repeat(43)}`,
      signed,
      `${signed}.`,
      `${signed}.${signature}.x`,
      'x',
    ]
    const at = (token: string) => `${front.url}/v1/blobs/${token}`
    for (const token of wrong) expect([token, (await fetch(at(token))).status]).toEqual([token, 401])
    expect((await fetch(body.url, { method: 'PUT', body: 'x' })).status).toBe(401)
    expect((await fetch(body.url)).status).toBe(200)
    await expect.poll(async () => (await fetch(body.url)).status, { timeout: 10_000 }).toBe(401)

    const key = await createKey(front.core.adminContext, operator, org, {}, [])
    const own = { 'x-api-key': key.secret }
    const links = [
      await ask('download', { id: 'dead', path: 'f' }, own),
      await ask('upload', { id: 'dead', path: 'h', size: 1 }, own),
    ]
    expect((await fetch(links[0]!.body.url)).status).toBe(200)
    await revokeKey(front.core.adminContext, operator, org, key.id)
    expect((await fetch(links[0]!.body.url)).status).toBe(401)
    expect((await fetch(links[1]!.body.url, { method: 'PUT', body: 'x' })).status).toBe(401)
  })

  it('uploads exactly the size that it was created for, or nothing', async () => {
    await inThread('size', 'echo old >f')
    const { body } = await ask('upload', { id: 'size', path: 'f', size: 5 })
    expect(body).toMatchObject({ method: 'PUT', headers: [{ name: 'Content-Length', value: '5' }] })
    expect((await fetch(body.url, { method: 'PUT', body: 'longer than 5' })).status).toBe(413)
    expect((await fetch(body.url, { method: 'PUT', body: 'abc' })).status).toBe(400)
    expect((await fetch(body.url, { method: 'PUT' })).status).toBe(400)
    expect(await inThread('size', 'cat f; ls -A')).toBe('old\nf\n')
    expect((await fetch(body.url, { method: 'PUT', body: '12345' })).status).toBe(200)
    expect(await inThread('size', 'cat f')).toBe('12345')
  })

  it('uploads exactly the size that it was created for without an announced length, or nothing', async () => {
    await inThread('chunked', 'echo old >f')
    const { body } = await ask('upload', { id: 'chunked', path: 'f', size: 5 })
    const send = async (pieces: string[]) => {
      const stream = Readable.toWeb(Readable.from(pieces))
      const response = await fetch(body.url, { method: 'PUT', body: stream, duplex: 'half' } as RequestInit)
      return response.status
    }
    expect([await send(['123', '456']), await send(['12', '3'])]).toEqual([413, 400])
    expect(await inThread('chunked', 'cat f; ls -A')).toBe('old\nf\n')
    expect(await send(['12', '345'])).toBe(200)
    expect(await inThread('chunked', 'cat f; ls -A')).toBe('12345f\n')
  })

  it('keeps the old file when the upload is interrupted', async () => {
    await inThread('vanish', 'echo old >f')
    const { body } = await ask('upload', { id: 'vanish', path: 'f', size: 1_000_000 })
    const { pathname, port } = new URL(body.url)
    const socket = connect(Number(port), '127.0.0.1')
    socket.write(
      `PUT ${pathname} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Length: 1000000\r\n\r\n${'x'.repeat(500_000)}`,
    )
    await new Promise((resolve) => setTimeout(resolve, 200))
    socket.destroy()
    await expect.poll(() => inThread('vanish', 'cat f; ls -A'), { timeout: 10_000 }).toBe('old\nf\n')
  })

  it('works once if created so, and counts only a completed upload', async () => {
    await inThread('once', 'true')
    const { body } = await ask('upload', { id: 'once', path: 'f', size: 3, once: true })
    expect((await fetch(body.url, { method: 'PUT', body: 'x' })).status).toBe(400)
    const both = await Promise.all(['abc', 'abd'].map((text) => fetch(body.url, { method: 'PUT', body: text })))
    expect(both.map(({ status }) => status).sort()).toEqual([200, 409])
    expect((await fetch(body.url, { method: 'PUT', body: 'abc' })).status).toBe(409)
  })

  it('never appears in a log', async () => {
    await inThread('log', 'echo x >f')
    const { body } = await ask('download', { id: 'log', path: 'f' })
    await (await fetch(body.url)).text()
    await (await fetch(`${body.url}x`)).text()
    const [, signature = ''] = (body.url.split('/').at(-1) ?? '').split('.')
    expect(signature.length).toBe(43)
    expect(front.lines.join('\n')).not.toContain(signature)
    expect(front.lines.join('\n')).toContain('/v1/blobs/')
  })
})

describe('files over REST', () => {
  it('are listed page by page, with paths from the root or from the directory', async () => {
    await inThread(
      'list',
      'mkdir -p d/e; for n in 1 2 3 4 5; do echo $n >d/f$n; done; ln -s /etc/passwd d/link; mkfifo d/pipe',
    )
    const names: string[] = []
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { status, body }: Answer = await ask('list', { id: 'list', path: 'd', limit: 2, ...(cursor && { cursor }) })
      expect(status).toBe(200)
      for (const { name, path, size, is_directory: isDirectory } of body.files) {
        expect([path, isDirectory]).toEqual([`d/${name}`, name === 'e'])
        expect(size).toBe(isDirectory ? 0 : 2)
        names.push(name)
      }
      cursor = body.next_cursor
    }
    expect(names.sort()).toEqual(['e', 'f1', 'f2', 'f3', 'f4', 'f5'])
    const relative = await ask('list', { id: 'list', path: 'd', relative: true })
    expect(relative.body.files.map(({ path }) => path)).toContain('f1')
    expect((await ask('list', { id: 'list' })).body.files).toMatchObject([{ name: 'd', path: 'd', is_directory: true }])
  })

  it('are deleted, directories with their content on request', async () => {
    await inThread('delete', 'mkdir -p d/e; touch a b d/f d/e/g')
    expect((await ask('delete', { id: 'delete', paths: ['a', 'b'] })).body.deleted).toBe(2)
    expect((await ask('delete', { id: 'delete', path: 'd' })).status).toBe(409)
    expect((await ask('delete', { id: 'delete', path: 'd', recursive: true })).body.deleted).toBe(4)
    expect(await inThread('delete', 'ls -A')).toBe('')
  })

  it('cannot be changed while a run uses the thread, but can be read', async () => {
    await inThread('busy', 'echo x >f')
    const { body: link } = await ask('upload', { id: 'busy', path: 'f', size: 1 })
    const going = inThread('busy', 'touch going; sleep 1.5')
    await expect.poll(async () => (await ask('list', { id: 'busy' })).body.files.length, { timeout: 10_000 }).toBe(2)
    expect((await fetch(link.url, { method: 'PUT', body: 'y' })).status).toBe(409)
    expect((await ask('delete', { id: 'busy', path: 'f' })).status).toBe(409)
    expect(await (await download('busy', 'f')).text()).toBe('x\n')
    await going
  })

  it('report the invalid field of a request', async () => {
    await inThread('wrong', 'mkdir d')
    const wrong: [string, object, number, string][] = [
      ['list', {}, 400, 'id'],
      ['list', { id: '../x' }, 400, 'id'],
      ['list', { id: 'wrong', source: 'disk' }, 400, 'source'],
      ['list', { id: 'wrong', limit: 0 }, 400, 'limit'],
      ['list', { id: 'wrong', cursor: 'x' }, 400, 'cursor'],
      ['list', { id: 'wrong', path: 'gone' }, 404, 'gone'],
      ['list', { id: 'nobody' }, 404, 'nobody'],
      ['upload', { id: 'wrong', path: 'f' }, 400, 'size'],
      ['upload', { id: 'wrong', path: 'f', size: 2 ** 40 }, 400, 'size'],
      ['upload', { id: 'wrong', path: 'f', size: 1, expires_in: 86_400 }, 400, 'expires_in'],
      ['download', { id: 'wrong', path: 'gone' }, 404, 'gone'],
      ['download', { id: 'wrong', path: 'd' }, 400, 'd'],
      ['delete', { id: 'wrong' }, 400, 'path'],
      ['delete', { id: 'wrong', path: 'gone' }, 404, 'gone'],
    ]
    for (const [what, body, status, word] of wrong) {
      const answer = await ask(what, body)
      expect([what, body, answer.status, answer.body.message]).toEqual([
        what,
        body,
        status,
        expect.stringContaining(word),
      ])
    }
  })

  it('are available to keys that may use the file tools', async () => {
    await inThread('tools', 'echo x >f')
    const only = async (...tools: string[]) => ({
      'x-api-key': (await createKey(front.core.adminContext, operator, org, { tools }, tools)).secret,
    })
    const [none, reads] = [await only('sandbox_execute'), await only('files_download')]
    const statuses = async (as: Record<string, string>) => [
      (await ask('list', { id: 'tools' }, as)).status,
      (await ask('download', { id: 'tools', path: 'f' }, as)).status,
      (await ask('upload', { id: 'tools', path: 'g', size: 1 }, as)).status,
      (await ask('delete', { id: 'tools', path: 'f' }, as)).status,
    ]
    expect(await statuses(none)).toEqual([403, 403, 403, 403])
    expect(await statuses(reads)).toEqual([200, 200, 403, 403])
  })

  it('belong to one organization', async () => {
    await inThread('mine', 'echo secret >f')
    const { id: other } = await createOrg(front.core.adminContext, operator, 'files of others')
    const theirs = { 'x-api-key': (await createKey(front.core.adminContext, operator, other, {}, [])).secret }
    for (const [what, more] of [
      ['list', {}],
      ['download', { path: 'f' }],
      ['delete', { path: 'f' }],
    ] as const) {
      expect((await ask(what, { id: 'mine', ...more }, theirs)).status).toBe(404)
    }
    expect(await inThread('mine', 'cat f')).toBe('secret\n')
  })

  it('cannot be reached outside the thread, whatever the path', async () => {
    const traps = 'mkdir -p d; echo in >d/f; ln -s /etc out; ln -s ../.. up; ln -s d ind; mkfifo pipe; ln d/f hard'
    await inThread('traps', traps)
    const piece = fc.oneof(
      fc.constantFrom(
        '..',
        '.',
        '',
        'd',
        'f',
        'out',
        'up',
        'ind',
        'pipe',
        'passwd',
        '\0',
        '/',
        '%2e%2e',
        'a\u0301',
        'á',
        '\\',
      ),
      fc.string({ unit: 'grapheme', maxLength: 8 }),
      fc.constant('x'.repeat(300)),
    )
    const paths = fc.array(piece, { minLength: 1, maxLength: 6 }).map((pieces) => pieces.join('/'))
    await fc.assert(
      fc.asyncProperty(paths, async (path) => {
        for (const what of ['list', 'download'] as const) {
          const { status, body } = await ask(what, { id: 'traps', path })
          expect([200, 400, 404, 409]).toContain(status)
          if (status !== 200 || what === 'list') continue
          expect(['in\n']).toContain(await (await fetch(body.url)).text())
        }
      }),
      { numRuns: 150 },
    )
  })

  it('do not exist for a profile without storage', async () => {
    const without = await openFront(testProfile)
    try {
      for (const what of ['list', 'upload', 'download', 'delete']) {
        const body = {
          source: 'thread',
          id: 'a',
          ...(what !== 'list' && { path: 'f' }),
          ...(what === 'upload' && { size: 1 }),
        }
        expect((await without.post(`/v1/files/${what}`, body)).status).toBe(400)
      }
    } finally {
      await without.close()
    }
  })
})

describe('files over MCP', () => {
  const call = async (name: string, args: object) => {
    const body = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name, arguments: { source: 'thread', ...args } },
    }
    const response = await front.post('/mcp', body, { ...headers, 'mcp-protocol-version': '2025-06-18' })
    const { result, error } = (await response.json()) as {
      result: {
        content: { type: string; text: string; uri: string; mimeType: string }[]
        structuredContent: { url: string; command: string }
        isError: boolean
      }
      error: { message: string }
    }
    return { result, error }
  }

  it('are written from the call, as text or base64', async () => {
    expect((await call('files_upload', { id: 'mcp', path: 'a.txt', content: 'Grüße' })).result.isError).toBe(false)
    await call('files_upload', {
      id: 'mcp',
      path: 'd/b.bin',
      content: Buffer.from([0, 1, 255]).toString('base64'),
      encoding: 'base64',
    })
    expect(await inThread('mcp', 'cat a.txt; od -An -tx1 d/b.bin')).toBe('Grüße 00 01 ff\n')
    for (const [args, word] of [
      [{}, 'content'],
      [{ content: '%', encoding: 'base64' }, 'base64'],
      [{ content: '\ud800' }, 'surrogate'],
      [{ content: 'x'.repeat(1024 * 1024 + 1) }, 'size'],
      [{ content: 'abc', size: 2 }, 'size'],
    ] as const) {
      expect(JSON.stringify(await call('files_upload', { id: 'mcp', path: 'f', ...args }))).toContain(word)
    }
  })

  it('are uploaded with the command line from the result, which works once', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'glovebox-upload-'))
    const file = join(directory, 'large')
    writeFileSync(file, 'x'.repeat(200_000))
    const { result } = await call('files_upload', { id: 'mcp', path: 'large', size: 200_000 })
    const { command } = result.structuredContent
    expect(command).toMatch(/^curl -fsS -T FILE '/)
    const { execFile } = await import('node:child_process')
    const shell = () =>
      new Promise<number>((resolve) => {
        execFile('sh', ['-c', command.replace('FILE', file)], (error) => resolve(Number(error?.code ?? 0)))
      })
    expect(await shell()).toBe(0)
    expect(await shell()).not.toBe(0)
    expect(await inThread('mcp', 'stat -c %s large')).toBe('200000\n')
    rmSync(directory, { recursive: true })
  })

  it('that do not fit into a result are returned as a link; audio is returned as audio', async () => {
    await inThread('mcp', `head -c 2000000 /dev/zero >zeros; printf 'RIFF\\0\\0\\0\\0WAVEfmt ' >s.wav`)
    const large = (await call('files_download', { id: 'mcp', path: 'zeros' })).result
    expect(large).toMatchObject({ isError: false, content: [{ type: 'text' }, { type: 'resource_link' }] })
    expect((await (await fetch(large.content[1]!.uri)).arrayBuffer()).byteLength).toBe(2_000_000)
    expect((await call('files_download', { id: 'mcp', path: 's.wav' })).result.content[0]).toMatchObject({
      mimeType: 'audio/wav',
    })
  })

  it('are resources of their thread', async () => {
    await inThread('mcp', 'mkdir -p "a b"; echo hello >"a b/ü.txt"')
    const read = async (uri: string) =>
      (await front.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'resources/read', params: { uri } }, headers)).json()
    const uri = 'glovebox://threads/mcp/files/a%20b/%C3%BC.txt'
    expect(await read(uri)).toMatchObject({ result: { contents: [{ uri, mimeType: 'text/plain', text: 'hello\n' }] } })
    for (const wrong of [
      'glovebox://threads/mcp/files/..%2F..%2Fetc/passwd',
      'glovebox://threads/x/files/f',
      'glovebox://threads/mcp/files/zeros',
    ]) {
      expect(await read(wrong)).toHaveProperty('error')
    }
  })
})

describe('glovebox push and pull', () => {
  async function command(work: (io: Parameters<typeof push>[2]) => Promise<number>) {
    const stderr = new PassThrough()
    const printed = buffer(stderr)
    const io = {
      stdin: Readable.from([]),
      stdout: new PassThrough(),
      stderr,
      env: { GLOVEBOX_URL: front.url, GLOVEBOX_KEY: headers['x-api-key'] },
      self: ['node'] as [string],
      stop: new AbortController().signal,
      onRepeatedSignal: () => undefined,
    }
    const code = await work(io)
    stderr.end()
    return { code, stderr: (await printed).toString() }
  }

  it('transfer files in both directions', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'glovebox-push-'))
    const [full, empty] = [join(directory, 'full'), join(directory, 'empty')]
    writeFileSync(full, 'x'.repeat(300_000))
    writeFileSync(empty, '')
    const words = { thread: 'pushed', path: 'in' }
    expect(await command((io) => push([full, empty], words, io))).toMatchObject({ code: 0 })
    expect(await inThread('pushed', 'stat -c "%n %s" in/*')).toBe('in/empty 0\nin/full 300000\n')
    const back = join(directory, 'back')
    expect(await command((io) => pull('in/full', back, { thread: 'pushed' }, io))).toMatchObject({ code: 0 })
    expect(readFileSync(back, 'utf8')).toBe('x'.repeat(300_000))
    const refused = await command((io) => pull('gone', join(directory, 'gone'), { thread: 'pushed' }, io))
    expect(refused).toMatchObject({ code: 70, stderr: expect.stringContaining('gone does not exist') })
    expect(() => statSync(join(directory, 'gone'))).toThrow()
    expect(await command((io) => push([full], {}, io))).toMatchObject({ code: 64 })
    expect(await command((io) => push(['/dev/null'], { thread: 'x' }, io))).toMatchObject({ code: 64 })
    rmSync(directory, { recursive: true })
  })
})
