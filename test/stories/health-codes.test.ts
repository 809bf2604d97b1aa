/** Conditions that a running server reports with a code. All codes, by their figures: test/contract/core/runtime-health.test.ts. */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, describe, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { type Glovebox, Place, until } from '../support/glovebox.ts'
import { runCommand } from '../support/keys.ts'
import { LoopDisk } from '../support/loop-disk.ts'
import { inPrivateMounts } from '../support/private-mounts.ts'

const mib = 1024 * 1024

inPrivateMounts(import.meta.filename, () => {
  let place: Place
  let token: string
  let disk: LoopDisk | undefined

  async function open(...flags: string[]): Promise<Glovebox> {
    const server = await place.start(...flags)
    token = (await runCommand(place, ['tokens', 'create', '--role', 'owner'])).stdout.trim()
    return server
  }

  afterEach(async () => {
    await place.lastServer?.end()
    await disk?.unmount()
    disk?.remove()
    disk = undefined
    await place.remove()
  }, 60_000)

  interface Issue {
    code: string
    suggested_action: string
  }

  async function issues({ url }: Glovebox): Promise<Issue[]> {
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'system_get_health' } }
    const response = await fetch(`${url}/runtime/rpc`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
      body: JSON.stringify(call),
    })
    const answer = (await response.json()) as { result: { structuredContent: { issues: Issue[] } } }
    return answer.result.structuredContent.issues
  }

  /** Waits until all of these codes are reported, at the same time or one after the other. */
  async function areReported(server: Glovebox, ...codes: string[]): Promise<void> {
    const missing = new Set(codes)
    const all = async () => {
      for (const { code } of await issues(server)) missing.delete(code.split(':').at(-1)!)
      return missing.size === 0
    }
    await until(all, 'all codes are reported').catch((error: Error) => {
      throw new Error(`${[...missing].join(', ')}: ${error.message}`)
    })
  }

  /** Runs a command in the mount namespace of the runner. */
  const inRunner = ({ runnerPid }: Glovebox, ...words: string[]) =>
    execFileSync('nsenter', ['-t', `${runnerPid}`, '-m', ...words])

  describe('a server', () => {
    it('reports that all slots are busy, that runs wait long, run out of memory, and that requests are slow', async () => {
      place = new Place()
      const flags = ['--slots-max', '2', '--runs-max', '2', '--queue-wait-s', '20', '--limit-memory', '48MiB']
      const server = await open(...flags)
      const slow = Array.from({ length: 20 }, () => execute(server.url, 'bash', 'sleep 1.2'))
      await areReported(server, 'SANDBOX_POOL_SATURATED')
      await Promise.all(slow)
      await areReported(server, 'QUEUE_WAIT_HIGH', 'PERF_SLOW_REQUESTS')
      for (let run = 0; run < 12; run += 1) await execute(server.url, 'python', 'bytearray(1 << 30)')
      await areReported(server, 'SANDBOX_OOM_RATE')
    }, 120_000)

    it('reports that connections and descriptors run out, and that its event loop is late', async () => {
      place = new Place()
      const server = await open('--connections-max', '32', '--slots-ready', '0')
      const idle: Socket[] = Array.from({ length: 28 }, () => connect(server.port, '127.0.0.1').on('error', () => {}))
      await areReported(server, 'WEB_CONNECTIONS_HIGH')
      for (const socket of idle) socket.destroy()
      const before = /Max open files\s+(\d+)/.exec(readFileSync(`/proc/${server.frontPid}/limits`, 'utf8'))?.[1]
      const openFiles = readdirSync(`/proc/${server.frontPid}/fd`).length
      const asFront = [`--reuid=${place.frontUid}`, `--regid=${place.frontUid}`, '--clear-groups']
      const limit = (files: string) =>
        execFileSync('setpriv', [...asFront, 'prlimit', '--pid', `${server.frontPid}`, `--nofile=${files}:`])
      limit(`${Math.floor(openFiles * 1.1)}`)
      await areReported(server, 'FD_HIGH')
      limit(before!)
      for (let round = 0; round < 20; round += 1) {
        process.kill(server.frontPid, 'SIGSTOP')
        await sleep(250)
        process.kill(server.frontPid, 'SIGCONT')
        await sleep(20)
      }
      await areReported(server, 'EVENT_LOOP_LAG')
    }, 120_000)

    it('reports that slots cannot be created, and that responses fail for it', async () => {
      place = new Place()
      const server = await open('--slots-ready', '1', '--slot-idle-s', '1', '--storage', 'none')
      const runtime = /^\/\S+/.exec(inRunner(server, 'sh', '-c', 'command -v crun || command -v runc').toString())?.[0]
      for (const path of new Set([runtime, '/usr/bin/crun', '/usr/sbin/runc']))
        inRunner(server, 'sh', '-c', `[ ! -e ${path} ] || mount --bind /dev/null ${path}`)
      for (let run = 0; run < 15; run += 1) await execute(server.url, 'bash', 'kill -9 $PPID').catch(() => undefined)
      await areReported(server, 'SANDBOX_START_FAILURES', 'SANDBOX_POOL_EMPTY', 'WEB_ERROR_RATE', 'LOG_ERRORS')
    }, 120_000)
  })

  describe('a server on a small disk', () => {
    it('reports that the disk is nearly full, that threads have used its reserve, and that it cannot write its database', async () => {
      place = new Place()
      disk = new LoopDisk(place, 256 * mib)
      const small = [
        '--storage-reserve',
        '64MiB',
        '--limit-thread',
        '16MiB',
        '--threads-mounted-max',
        '1',
        '--runs-max',
        '1',
      ]
      const server = await open('--slots-ready', '0', ...small)
      disk.fill(24 * mib)
      await areReported(server, 'DISK_LOW', 'DISK_RESERVE_USED', 'DRIVER_UNAVAILABLE')
      disk.fill(0)
      await areReported(server, 'DS_UNWRITABLE')
    }, 180_000)
  })
})
