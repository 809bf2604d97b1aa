import { once } from 'node:events'
import type { Duplex } from 'node:stream'
import { buffer, text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { JailNetwork } from '../../../src/base/network.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { execute, follow, type SandboxRunner, sandboxRunner, sandboxSpec } from '../../support/sandbox-runner.ts'

const programs = {
  web: 'import http.server as h; s = h.ThreadingHTTPServer(("127.0.0.1", 8000), h.SimpleHTTPRequestHandler); print("up", flush=True); s.serve_forever()',
  // Answers each connection with all that it sent, when it has ended.
  late: `import asyncio
async def serve(reader, writer):
    writer.write(await reader.read())
    await writer.drain()
    writer.close()
async def main():
    s = await asyncio.start_server(serve, "::1", 8001, backlog=4096)
    print("up", flush=True)
    await s.serve_forever()
asyncio.run(main())`,
  // Sends without end, and never reads.
  endless: `import socket, threading
s = socket.create_server(("127.0.0.1", 8002))
print("up", flush=True)
def serve(c):
    try:
        while True: c.sendall(b"x" * 65536)
    except OSError: print("lost", flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()`,
}

inPrivateMounts(import.meta.filename, () => {
  describe('a connection to a server in a sandbox', () => {
    let runner: SandboxRunner
    let sandboxId: string
    const processes = new Map<string, number>()
    beforeAll(async () => {
      runner = await sandboxRunner()
      const spec = sandboxSpec({
        limits: { ...sandboxSpec().limits, memoryBytes: 256 * 1024 * 1024, pids: 1_024, openFiles: 4_096 },
      })
      sandboxId = spec.sandboxId
      await runner.client.sandboxes.start(spec)
      for (const [name, code] of Object.entries(programs)) {
        const argv = ['python3', '-c', code]
        const { processId } = await runner.client.sandboxes.processes.start(sandboxId, { argv })
        processes.set(name, processId)
        await said(name, 'up\n')
      }
    }, 60_000)
    afterAll(async () => {
      expect(await runner.close()).toEqual([])
    })

    /** Waits until a program has written a text. */
    async function said(name: string, wanted: string): Promise<void> {
      let output = ''
      for await (const event of runner.client.sandboxes.processes.attach(sandboxId, processes.get(name)!, 0)) {
        if (event.kind === 'output') output += Buffer.from(event.bytes).toString()
        if (output.endsWith(wanted)) return
      }
      throw new Error(`${name} ended: ${output}`)
    }

    const open = (port: number): Promise<Duplex> => runner.client.sandboxes.tunnels.open(sandboxId, port)

    it('reaches it although the sandbox has no network, and the sandbox reaches nothing through it', async () => {
      await execute(runner.client, sandboxId, ['bash', '-c', 'echo inside > index.html'])
      const tunnel = await open(8000)
      tunnel.write('GET / HTTP/1.0\r\n\r\n')
      expect(await text(tunnel)).toMatch(/^HTTP\/1.0 200 OK[\s\S]*\r\n\r\ninside\n$/)
      const { stdout } = await execute(runner.client, sandboxId, [
        'bash',
        '-c',
        'cat /proc/net/route; ls /sys/class/net',
      ])
      expect(stdout).not.toMatch(/eth|tun/)
    })

    it('keeps each direction open on its own, on IPv6 as well', async () => {
      const tunnel = await open(8001)
      tunnel.end('all of it')
      expect(await text(tunnel)).toBe('all of it')
    })

    it('carries much in both directions, unchanged', async () => {
      const tunnel = await open(8001)
      const sent = Buffer.alloc(16 * 1024 * 1024, 'a lot of data ')
      tunnel.end(sent)
      expect((await buffer(tunnel)).equals(sent)).toBe(true)
    })

    it('is one of many at once', async () => {
      const tunnels = await Promise.all(Array.from({ length: 1_000 }, () => open(8001)))
      const answers = tunnels.map((tunnel, n) => {
        tunnel.end(`number ${n}`)
        return text(tunnel)
      })
      expect(await Promise.all(answers)).toEqual(tunnels.map((_, n) => `number ${n}`))
    })

    it('holds no more than a window of what is not read, and ends for the server when it is closed', async () => {
      const tunnel = await open(8002)
      await once(tunnel, 'readable')
      // Others are not held up by it.
      const other = await open(8001)
      other.end('other')
      expect(await text(other)).toBe('other')
      expect(tunnel.readableLength).toBeLessThanOrEqual(256 * 1024)
      tunnel.destroy()
      await said('endless', 'lost\n')
    })

    it('is refused where nothing listens, where no sandbox runs and while it is paused', async () => {
      await expect(open(9)).rejects.toMatchObject({ code: 'port_closed' })
      await expect(runner.client.sandboxes.tunnels.open('sbxnone', 80)).rejects.toMatchObject({
        code: 'sandbox_not_running',
      })
      await runner.client.sandboxes.pause(sandboxId)
      await expect(open(8000)).rejects.toMatchObject({ code: 'sandbox_not_running' })
      await runner.client.sandboxes.resume(sandboxId)
    })

    it('is made in the namespace of a sandbox that has a network too', async () => {
      const limits = { connections: 100, bytes: 0, bytesPerSecond: 0 }
      const network: JailNetwork = { policy: 'allow', rules: ['example.com'], limits }
      const spec = sandboxSpec({ network })
      const { sandboxes } = runner.client
      await sandboxes.start(spec)
      const argv = ['python3', '-c', programs.web]
      const { processId } = await sandboxes.processes.start(spec.sandboxId, { argv })
      for await (const event of sandboxes.processes.attach(spec.sandboxId, processId, 0))
        if (event.kind === 'output') break
      const tunnel = await sandboxes.tunnels.open(spec.sandboxId, 8000)
      tunnel.write('HEAD / HTTP/1.0\r\n\r\n')
      expect(await text(tunnel)).toContain('200 OK')
      await sandboxes.stop(spec.sandboxId, 0)
    })

    it('ends with its sandbox', async () => {
      const tunnel = await open(8001)
      const ended = text(tunnel).catch(() => 'lost')
      const closed = once(tunnel, 'close')
      await runner.client.sandboxes.stop(sandboxId, 0)
      await closed
      expect(['', 'lost']).toContain(await ended)
      expect(
        (await follow(runner.client, sandboxId, processes.get('web')!).catch(() => undefined))?.stdout,
      ).toBeUndefined()
    })
  })
})
