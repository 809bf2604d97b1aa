import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js'
import { describe, expect, it } from 'vitest'
import { openStory } from '../support/story.ts'

const story = openStory(['--env', 'DEPLOY_TOKEN=tr0ub4dor-and-three'])

/** A coding agent that is connected by the transport of 2024-11-05. */
async function connect() {
  const client = new Client({ name: 'coding-agent', version: '1.0.0' })
  await client.connect(new SSEClientTransport(new URL(`${story.url}/sse`)))
  const call = async (name: string, input: object = {}) => {
    const { content, isError } = await client.callTool({ name, arguments: { ...input } })
    return { text: (content as { text: string }[])[0]!.text, isError: isError === true }
  }
  return { client, call }
}

const program = 'def add(a, b):\n    return a - b\n'
const test =
  'import unittest\nfrom sums import add\n\nclass T(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n'

describe('a coding agent in a sandbox', () => {
  it('writes a program, sees its test fail, fixes it, and restores a snapshot', async () => {
    const { client, call } = await connect()
    expect((await call('Write', { file_path: 'sums.py', content: program })).text).toBe(
      `wrote ${program.length} bytes to sums.py`,
    )
    await call('Write', { file_path: 'test_sums.py', content: test })
    expect((await call('Glob', { pattern: '*.py' })).text.split('\n').sort()).toEqual(['sums.py', 'test_sums.py'])
    const failed = await call('run_tests')
    expect(failed).toMatchObject({
      isError: true,
      text: expect.stringMatching(/test_sums\.py:6:test: AssertionError: -1 != 5/),
    })
    await call('snapshot_create', { name: 'before' })
    await call('Edit', { file_path: 'sums.py', old_string: 'a - b', new_string: 'a + b' })
    expect((await call('run_tests')).isError).toBe(false)
    expect((await call('snapshot_diff', { name: 'before' })).text).toContain('+    return a + b')
    await call('snapshot_restore', { name: 'before' })
    expect((await call('Read', { file_path: 'sums.py' })).text).toContain('a - b')
    await client.close()
  })

  it('keeps its files when the sandbox is stopped, and gets them with the next call', async () => {
    const first = await connect()
    await first.call('Bash', { command: 'echo kept > kept.txt' })
    await first.client.close()
    await fetch(`${story.url}/v1/sandboxes/workspace/stop`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{}',
    })
    const second = await connect()
    expect((await second.call('Read', { file_path: 'kept.txt' })).text).toBe('1\tkept\n')
    await second.client.close()
  })

  it('has workspaces that share nothing, and directories in them', async () => {
    const { client, call } = await connect()
    await call('Write', { file_path: 'only-here.txt', content: 'x' })
    expect((await call('Glob', { pattern: 'only-*', workspace: 'other' })).text).toBe('no files found')
    expect((await call('Bash', { command: 'pwd', workspace: 'other:/tmp' })).text).toBe('/tmp\n')
    expect(await call('Read', { file_path: '/etc/passwd' })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/outside workspace root/),
    })
    expect(await call('Read', { file_path: 'x', workspace: '../../etc' })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/must be the name of a sandbox/),
    })
    await client.close()
  })

  it('does not see the secrets that its programs have', async () => {
    const { client, call } = await connect()
    expect((await call('Bash', { command: 'echo $DEPLOY_TOKEN; echo $DEPLOY_TOKEN | base64' })).text).toMatch(
      /^\[REDACTED:DEPLOY_TOKEN\]\n\[REDACTED:DEPLOY_TOKEN\]/,
    )
    expect((await call('secret', { name: 'DEPLOY_TOKEN' })).text).toBe('tr0ub4dor-and-three')
    await client.close()
  })
})
