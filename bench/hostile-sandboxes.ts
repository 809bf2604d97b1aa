/** Attacks with named sandboxes and what they offer. */
import { once } from 'node:events'
import { Agent, get, type IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { post } from '../test/support/calls.ts'
import { type Attack, codeSeconds, type HostileWork, repeat } from './hostile-attack.ts'

const sandboxes = 2

const bodyOf = (target: HostileWork, method: string, path: string) =>
  fetch(`${target.url}/v1/sandboxes${path}`, { method, headers: target.headers }).then(async (response) => {
    await response.arrayBuffer()
    return response.status
  })

/** Runs an attack on sandboxes of its own, which are deleted afterwards. */
async function within(
  target: HostileWork,
  prefix: string,
  use: (names: readonly string[]) => Promise<void>,
): Promise<void> {
  const names = Array.from({ length: sandboxes }, (_, n) => `${prefix}-${n}`)
  for (const name of names) {
    const { status } = await post(`${target.url}/v1/sandboxes`, { name }, target.headers)
    if (status !== 201) throw new Error(`a sandbox was answered with ${status}`)
  }
  try {
    await use(names)
  } finally {
    for (const name of names) await bodyOf(target, 'DELETE', `/${name}`)
  }
}

/** Creates and deletes sandboxes without a pause. */
const startLoops: Attack = (target, tally, stop) =>
  repeat(tally, stop, 4, async (worker) => {
    const name = `loop-${worker}`
    const { status } = await post(`${target.url}/v1/sandboxes`, { name }, target.headers)
    await bodyOf(target, 'DELETE', `/${name}`)
    return status
  })

const code = async ({ url, headers }: HostileWork, name: string, text: string, more: object = {}) =>
  (
    await post(
      `${url}/v1/sandboxes/${name}/code`,
      { language: 'python', code: text, timeout: codeSeconds, ...more },
      headers,
    )
  ).status

const kernelFloods: Attack = (target, tally, stop) =>
  within(target, 'flood', (names) =>
    repeat(tally, stop, sandboxes * 2, (worker) =>
      code(target, names[worker % sandboxes]!, 'while True: print("x" * 10000)'),
    ),
  )

/** Each call leaves a frozen copy of an interpreter whose memory has changed. */
const rewindCopies: Attack = (target, tally, stop) =>
  within(target, 'rewind', async (names) => {
    const contexts = await Promise.all(
      names.map(async (name) => {
        const asked = { language: 'python', rewind: 32 }
        const { body } = await post<{ id: string }>(
          `${target.url}/v1/sandboxes/${name}/contexts`,
          asked,
          target.headers,
        )
        return body.id
      }),
    )
    await repeat(tally, stop, sandboxes, (worker) =>
      code(target, names[worker]!, 'import os; kept = os.urandom(16 << 20)', { context: contexts[worker] }),
    )
  })

/** Visitors of a published port, who open more connections than it may have. */
const previews: Attack = (target, tally, stop) =>
  within(target, 'preview', async ([name]) => {
    const of = `${target.url}/v1/sandboxes/${name}`
    const server = { command: 'python3', args: ['-m', 'http.server', '8000'] }
    await post(`${of}/processes`, server, target.headers)
    await sleep(1_000)
    const { body } = await post<{ url: string }>(`${of}/ports`, { port: 8000, access: 'public' }, target.headers)
    const agent = new Agent({ keepAlive: false })
    await repeat(tally, stop, 200, async () => {
      const [response] = (await once(get(body.url, { agent }), 'response')) as [IncomingMessage]
      response.resume()
      await once(response, 'close')
      return response.statusCode ?? 0
    })
  })

/** Streams of the older transport, opened and left at once. */
const workspaceStreams: Attack = ({ url, headers }, tally, stop) => {
  const agent = new Agent({ keepAlive: false })
  return repeat(tally, stop, 64, async () => {
    const sent = get(`${url}/sse`, { agent, headers })
    const [response] = (await once(sent, 'response')) as [IncomingMessage]
    await once(response, 'data')
    sent.destroy()
    return response.statusCode ?? 0
  })
}

/** Calls that list, search and read in a workspace. */
const workspaceCalls: Attack = (target, tally, stop) =>
  repeat(tally, stop, 8, async (worker) => {
    const [name, input] =
      worker % 2 === 0 ? ['Glob', { pattern: '/usr/**/*.py' }] : ['Grep', { pattern: 'a.*b.*c', path: '/usr/lib' }]
    const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: input } }
    const more = { accept: 'application/json, text/event-stream' }
    const response = await fetch(`${target.url}/mcp?toolsets=workspace`, {
      method: 'POST',
      headers: { ...target.headers, ...more, 'content-type': 'application/json' },
      body: JSON.stringify(message),
      signal: AbortSignal.any([stop, AbortSignal.timeout(10_000)]),
    })
    await response.arrayBuffer()
    return response.status
  })

/** Operations on files of a sandbox: each is a process there. */
const sandboxFiles: Attack = (target, tally, stop) =>
  within(target, 'files', (names) =>
    repeat(tally, stop, 32, (worker) => bodyOf(target, 'GET', `/${names[worker % sandboxes]}/files?path=/usr/lib`)),
  )

export const sandboxAttacks: Readonly<Record<string, Attack>> = {
  'sandboxes created and deleted': startLoops,
  'output floods in contexts': kernelFloods,
  'frozen copies of contexts': rewindCopies,
  'visitors of a published port': previews,
  'streams of workspaces': workspaceStreams,
  'searches in workspaces': workspaceCalls,
  'files of sandboxes': sandboxFiles,
}
