import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { post } from '../support/calls.ts'
import { openStory } from '../support/story.ts'

const story = openStory(['--limit-thread', '64MiB', '--storage-reserve', '0'])

interface Item {
  type: string
  text?: string
  uri?: string
  name?: string
}

interface Answer {
  content: Item[]
  structuredContent: { files?: { path: string; sha256: string; kind: string }[]; files_truncated?: boolean }
}

async function call(code: string, thread_id: string | undefined, version = '2025-06-18'): Promise<Answer> {
  const args = { code, language: 'bash', ...(thread_id && { thread_id }) }
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'sandbox_execute', arguments: args } }
  const headers = { 'mcp-protocol-version': version }
  return (await post<{ result: Answer }>(`${story.url}/mcp`, message, headers)).body.result
}

const linksOf = ({ content }: Answer) => content.filter(({ type }) => type === 'resource_link')

describe('a run with a thread', () => {
  it('lists and links the files it created, and only those', async () => {
    const first = await call('mkdir out && echo one >out/one.txt && echo two >two.txt', 'told')
    expect(linksOf(first).map(({ uri }) => uri)).toEqual([
      'glovebox://threads/told/files/out/one.txt',
      'glovebox://threads/told/files/two.txt',
    ])
    const sha256 = createHash('sha256').update('two\n').digest('hex')
    expect(first.structuredContent.files?.[1]).toMatchObject({ path: 'two.txt', sha256, kind: 'text' })
    const second = await call('cat two.txt && rm out/one.txt && echo more >>two.txt', 'told')
    expect(second.structuredContent.files?.map(({ path }) => path)).toEqual(['two.txt'])
    expect((await call('cat two.txt', 'told')).structuredContent).toMatchObject({ files: [] })
  })

  it('lists its files with every ending', async () => {
    const { structuredContent } = await call('echo half >half.txt; kill -9 $$', 'killed')
    expect(structuredContent.files?.map(({ path }) => path)).toEqual(['half.txt'])
  })

  it('links at most twenty files, and counts the rest', async () => {
    const answer = await call('for i in $(seq 25); do echo $i >$i; done', 'many')
    expect(linksOf(answer)).toHaveLength(20)
    expect(answer.content[0]?.text).toContain('5 more files were changed')
    expect(answer.structuredContent.files).toHaveLength(25)
  })

  it('lists its files as text for clients without resource links', async () => {
    const { content } = await call('echo x >x.txt', 'older', '2025-03-26')
    expect(content.map(({ type }) => type)).toEqual(['text', 'text'])
    expect(content[1]?.text).toContain('glovebox://threads/older/files/x.txt')
  })

  it('lists its files in REST responses', async () => {
    const body = { code: 'echo x >x.txt', language: 'bash', thread_id: 'rest' }
    const { body: execution } = await post<object>(`${story.url}/v1/sandbox/execute`, body)
    expect(execution).toMatchObject({ files: [{ path: 'x.txt', size_bytes: 2, mime_type: 'text/plain' }] })
  })
})

describe('a run without a thread', () => {
  it('lists no files', async () => {
    const answer = await call('echo x >x.txt', undefined)
    expect(linksOf(answer)).toEqual([])
    expect(answer.structuredContent.files).toBeUndefined()
  })
})
