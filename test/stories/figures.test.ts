import { existsSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { callTool, post } from '../support/calls.ts'
import { openStory } from '../support/story.ts'

const hasMatplotlib = existsSync('/usr/lib/python3/dist-packages/matplotlib')

const story = openStory(['--limit-thread', '64MiB', '--storage-reserve', '0'])

interface Item {
  type: string
  data?: string
  mimeType?: string
}

interface Shown {
  /** Widths and heights, from the image data. */
  sizes: string[]
  /** The images in base64. */
  data: string[]
  text: string
  fields: {
    images?: { mime_type: string; url: string }[]
    images_shown?: number
    images_dropped?: number
    images_ignored?: boolean
    exit_code: number
    stdout: string
  }
}

const sizeOf = (image: Buffer) => `${image.readUInt32BE(16)}x${image.readUInt32BE(20)}`

async function run(code: string, more: object = {}): Promise<Shown> {
  const { body } = await callTool(story.url, { language: 'python', code, ...more })
  const content = body.result?.content as unknown as Item[]
  const images = content.filter(({ type }) => type === 'image')
  for (const { mimeType } of images) expect(mimeType).toBe('image/png')
  return {
    sizes: images.map(({ data }) => sizeOf(Buffer.from(data ?? '', 'base64'))),
    data: images.map(({ data }) => data ?? ''),
    text: body.result?.content[0]?.text ?? '',
    fields: body.result?.structuredContent as unknown as Shown['fields'],
  }
}

const png = (width: number, height: number) => `
import zlib, struct
def chunk(t, d): return struct.pack('>I', len(d)) + t + d + struct.pack('>I', zlib.crc32(t + d))
image = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', ${width}, ${height}, 8, 0, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(bytes((${width} + 1) * ${height}))) + chunk(b'IEND', b'')
record = struct.pack('<IBBH', len(image), 1, 1, 0) + image
`

const figure = (width: number) => `plt.figure(figsize=(${width}, 1), dpi=50); plt.plot([1, 2])`

describe.skipIf(!hasMatplotlib)('a matplotlib figure', () => {
  // In a fresh interpreter, then in forks of a waiting one, with and without a thread.
  it.each([
    ['first', {}],
    ['forked', {}],
    ['in a thread', { thread_id: 'figures' }],
    ['in the thread again', { thread_id: 'figures' }],
    ['with a standard input', { stdin: 'x' }],
  ])('comes back as an image, once: %s', async (_how, more) => {
    const code = `
import matplotlib.pyplot as plt
${figure(2)}
${figure(3)}
plt.show()
plt.show()
${figure(4)}
print('drawn')
`
    const { sizes, fields } = await run(code, more)
    expect(fields).toMatchObject({ exit_code: 0, stdout: 'drawn\n', images_shown: 3 })
    expect(sizes).toEqual(['100x50', '150x50', '200x50'])
    expect((await run('print(1)', more)).sizes).toEqual([])
  })

  it('has a link in structured results, whether other output is kept or not', async () => {
    const code = `import matplotlib.pyplot as plt\n${figure(2)}`
    expect((await run(code, { idempotency_key: 'kept' })).fields.images).toHaveLength(1)
    const { fields, data } = await run(code)
    const [link] = fields.images ?? []
    expect(link).toEqual({
      mime_type: 'image/png',
      url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/v1\/executions\/trc_[\w-]+\/images\/1$/),
    })
    const fetched = await fetch(link!.url)
    expect([fetched.status, fetched.headers.get('content-type')]).toEqual([200, 'image/png'])
    expect(Buffer.from(await fetched.arrayBuffer()).toString('base64')).toBe(data[0])
    const head = await fetch(link!.url, { method: 'HEAD' })
    expect([head.status, head.headers.get('content-length')]).toEqual([200, fetched.headers.get('content-length')])
    for (const number of ['2', '0', '01', '-1', 'x']) {
      const missing = await fetch(link!.url.replace(/1$/, number))
      expect([missing.status, await missing.json()]).toEqual([404, expect.objectContaining({ error: 'not_found' })])
    }
  })

  it('that is open when the program fails is still returned', async () => {
    const { sizes, fields } = await run(`import matplotlib.pyplot as plt\n${figure(2)}\n1 / 0`)
    expect([sizes, fields.exit_code]).toEqual([['100x50'], 1])
  })

  it('is returned once, by the process that drew it and not by its forks', async () => {
    const code = `
import matplotlib.pyplot as plt, multiprocessing, os
${figure(2)}
def work(): plt.show()
child = multiprocessing.get_context('fork').Process(target=work)
child.start(); child.join()
if os.fork() == 0: raise SystemExit(0)
os.wait()
`
    expect((await run(code)).sizes).toEqual(['100x50'])
  })

  it('is not captured when the program chooses its own backend or calls savefig', async () => {
    const own = `import matplotlib.pyplot as plt, os\n${figure(2)}\nplt.savefig('a.png'); print(os.path.getsize('a.png') > 100, plt.get_backend())`
    expect(await run(own, { env_vars: { MPLBACKEND: 'agg' } })).toMatchObject({
      sizes: [],
      fields: { stdout: 'True agg\n' },
    })
    expect((await run(`${own}; plt.close()`)).fields.stdout).toMatch(/^True /)
  })

  it('is captured when a shell starts the program, or when the program ignores its environment', async () => {
    const code = `printf 'import matplotlib.pyplot as plt\\n${figure(2)}\\n' >/tmp/p.py; python3 -I /tmp/p.py`
    expect((await run(code, { language: 'bash' })).sizes).toEqual(['100x50'])
  })
})

describe('an image', () => {
  it('of any program is returned through its file descriptor, also over REST and in NDJSON streams', async () => {
    const code = `import os\n${png(5, 7)}\nos.write(60, record)`
    expect((await run(code)).sizes).toEqual(['5x7'])
    const body = { language: 'python', code }
    const { body: execution } = await post<{ images: { mime_type: string; data_base64: string }[] }>(
      `${story.url}/v1/sandbox/execute`,
      body,
    )
    expect(execution.images.map(({ mime_type }) => mime_type)).toEqual(['image/png'])
    const response = await fetch(`${story.url}/v1/sandbox/execute`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/x-ndjson' },
      body: JSON.stringify(body),
    })
    const lines = (await response.text())
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
    const [image, result] = [lines.find(({ type }) => type === 'image'), lines.at(-1)]
    expect(image).toEqual({ type: 'image', seq: expect.any(Number), ...execution.images[0] })
    expect([result?.type, result?.images_shown, result?.images]).toEqual(['result', 1, undefined])
  })

  it('is returned again when the call is repeated with its idempotency key', async () => {
    const code = `import os\n${png(9, 9)}\nos.write(60, record)`
    const more = { idempotency_key: 'shown-once' }
    expect([(await run(code, more)).sizes, (await run(code, more)).sizes]).toEqual([['9x9'], ['9x9']])
  })

  it('with invalid data is reported as invalid and does not affect the rest of the result', async () => {
    const { sizes, text, fields } = await run(
      `import os\n${png(5, 7)}\nos.write(60, record + b'any text that is none' + record)\nprint('on')`,
    )
    expect(sizes).toEqual(['5x7'])
    expect(fields).toMatchObject({ stdout: 'on\n', images_shown: 1, images_ignored: true, exit_code: 0 })
    expect(text).toContain('invalid image data was ignored')
  })

  it('stream without end stops the program, and does not use memory of the server', async () => {
    const { fields } = await run(`import os\n${png(5, 7)}\nwhile True: os.write(60, record * 500)`)
    expect(fields).toMatchObject({ ending: { kind: 'output_limit' }, images_shown: 16 })
    expect((await run('print("next")')).fields.stdout).toBe('next\n')
  })
})
