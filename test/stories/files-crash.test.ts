import { once } from 'node:events'
import { request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, describe, expect, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { freePort, type Glovebox, killIfThere, Place, until } from '../support/glovebox.ts'
import { processesOf } from '../support/machine.ts'

const places: Place[] = []
afterAll(async () => {
  for (const place of places) await place.remove()
})

async function startServer(): Promise<{ place: Place; server: Glovebox }> {
  const place = new Place()
  places.push(place)
  const flags = ['--limit-thread', '64MiB', '--storage-reserve', '0', '--port', `${await freePort()}`]
  return { place, server: await place.start(...flags) }
}

async function linkTo(url: string, path: string, size: number, id = 'thread'): Promise<string> {
  const response = await fetch(`${url}/v1/files/upload`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ source: 'thread', id, path, size }),
  })
  return ((await response.json()) as { url: string }).url
}

const mib = 1024 * 1024

/** Sends part of a file and then pauses. */
async function beginUpload(link: string, content: Buffer, sentBytes: number): Promise<{ end(): void }> {
  const sending = request(link, { method: 'PUT', headers: { 'content-length': content.length } })
  sending.on('error', () => undefined)
  sending.write(content.subarray(0, sentBytes))
  await once(sending, 'socket')
  await sleep(300)
  return { end: () => void sending.destroy() }
}

const partOf = (place: Place, name: 'front' | 'runner'): number | undefined =>
  processesOf(place).find(({ words }) => words.at(-1) === name)?.pid

describe('an upload', () => {
  it.each(['front', 'runner'] as const)(
    'leaves the old file, and nothing else, when the %s is killed in its middle',
    async (part) => {
      const { place, server } = await startServer()
      await execute(server.url, 'bash', 'echo old >f', { thread_id: 'thread' })
      const content = Buffer.alloc(8 * mib, 'n')
      const upload = await beginUpload(await linkTo(server.url, 'f', content.length), content, 5 * mib)
      const pid = partOf(place, part)
      if (pid === undefined) throw new Error(`there is no ${part}`)
      killIfThere(pid)
      upload.end()
      await until(async () => {
        const { stdout } = await execute(server.url, 'bash', 'cat f; ls -A', { thread_id: 'thread' }).catch(() => ({
          stdout: '',
        }))
        return stdout === 'old\nf\n'
      }, 'the old file is there')
      const again = await fetch(await linkTo(server.url, 'f', content.length), { method: 'PUT', body: content })
      expect(again.status).toBe(200)
      expect((await execute(server.url, 'bash', 'stat -c %s f', { thread_id: 'thread' })).stdout).toBe(`${8 * mib}\n`)
    },
    120_000,
  )

  it('into new directories succeeds fifty times in parallel', async () => {
    const { server } = await startServer()
    const names = Array.from({ length: 50 }, (_, n) => `new/${n % 7}/deep/file-${n}`)
    const statuses = await Promise.all(
      names.map(
        async (name) =>
          (await fetch(await linkTo(server.url, name, name.length), { method: 'PUT', body: name })).status,
      ),
    )
    expect(new Set(statuses)).toEqual(new Set([200]))
    const { stdout } = await execute(server.url, 'bash', 'cd new && find . -type f | wc -l && cat 3/deep/file-3', {
      thread_id: 'thread',
    })
    expect(stdout).toBe('50\nnew/3/deep/file-3')
  })

  it('to the same path at the same time leaves exactly one complete file', async () => {
    const { server } = await startServer()
    const links = [await linkTo(server.url, 'f', mib), await linkTo(server.url, 'f', mib)]
    await Promise.all(links.map((link, n) => fetch(link, { method: 'PUT', body: Buffer.alloc(mib, 'ab'[n]) })))
    const { stdout } = await execute(server.url, 'bash', 'head -c 1 f; tr -d a <f | wc -c; tr -d b <f | wc -c', {
      thread_id: 'thread',
    })
    expect(stdout).toMatch(/^(a0\n1048576|b1048576\n0)\n$/)
  })
})
