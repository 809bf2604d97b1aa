import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { echoProgram } from './echo.ts'

/** The gateways that ours is compared with, from npm. */
const packages = ['supergateway@4.0.0', 'mcp-proxy@6.7.19', 'mcporter@0.12.3']

export type Over = 'http' | 'program'

const readyWithinMs = 60_000

/** A gateway in front of `echo`, with a session. */
export interface Peer {
  name: string
  /** How it reaches its upstream. */
  over: Over
  url: string
  /** Ends it and the processes that it has started. */
  stop(): Promise<void>
}

/**
 * Installs the peers in a directory, and starts each of them in front of the upstream and in front of a program. Two of them
 * only start programs: they reach the upstream through the bridge of supergateway.
 * @param directory temporary. @param upstream address of the upstream. @param peers receives each peer.
 */
export async function startPeers(directory: string, upstream: string, peers: Peer[]): Promise<void> {
  writeFileSync(join(directory, 'package.json'), '{ "private": true }')
  const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
  await promisify(execFile)('npm', ['install', ...flags, ...packages], { cwd: directory })
  const program = join(directory, 'echo.cjs')
  writeFileSync(program, echoProgram)
  const bin = (name: string) => join(directory, 'node_modules/.bin', name)
  const commands = {
    program: [process.execPath, program],
    http: [process.execPath, bin('supergateway'), '--streamableHttp', upstream, '--logLevel', 'none'],
  }
  const lifecycle = 'keep-alive'
  const entries = {
    program: { command: process.execPath, args: [program], lifecycle },
    http: { baseUrl: upstream, lifecycle },
  }
  for (const over of ['http', 'program'] as const) {
    const config = `mcporter-${over}.json`
    writeFileSync(join(directory, config), JSON.stringify({ mcpServers: { [over]: entries[over] }, imports: [] }))
    const of = {
      supergateway: (port: string) => [
        ...['--stdio', commands[over].join(' '), '--outputTransport', 'streamableHttp', '--stateful'],
        ...['--port', port, '--logLevel', 'none'],
      ],
      'mcp-proxy': (port: string) => [
        ...['--host', '127.0.0.1', '--port', port, '--server', 'stream', '--', ...commands[over]],
      ],
      mcporter: (port: string) => ['serve', '--http', port, '--servers', over, '--config', config],
    }
    for (const [name, args] of Object.entries(of)) {
      const port = await freePort()
      const path = name === 'mcporter' ? `/mcp/${over}` : '/mcp'
      const options = { cwd: directory, env: { PATH: process.env.PATH, HOME: directory } }
      const child = spawn(process.execPath, [bin(name), ...args(String(port))], { ...options, stdio: 'ignore' })
      const stop = async () => {
        child.kill('SIGTERM')
        // It starts a daemon, which outlives it.
        const daemon = ['daemon', 'stop', '--config', config]
        if (name === 'mcporter') await promisify(execFile)(process.execPath, [bin(name), ...daemon], options)
      }
      const isBridged = over === 'http' && name !== 'mcporter'
      peers.push({ name: isBridged ? `${name}, bridged` : name, over, url: `http://127.0.0.1:${port}${path}`, stop })
      await listening(name, port, child)
    }
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return port
}

async function listening(name: string, port: number, child: ChildProcess): Promise<void> {
  const untilMs = performance.now() + readyWithinMs
  while (performance.now() < untilMs && child.exitCode === null) {
    const socket = connect({ host: '127.0.0.1', port })
    const isOpen = await Promise.race([
      once(socket, 'connect').then(() => true),
      once(socket, 'error').then(() => false),
    ]).catch(() => false)
    socket.destroy()
    if (isOpen) return
    await sleep(100)
  }
  throw new Error(`${name} does not listen (exit code ${child.exitCode})`)
}
