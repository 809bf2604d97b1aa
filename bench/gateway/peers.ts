import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'

/** The gateways that ours is compared with, from npm. */
const packages = ['supergateway@4.0.0', 'mcp-proxy@6.7.19', 'mcporter@0.12.3']

const readyWithinMs = 60_000

/** A gateway in front of the program `echo`, with a session. */
export interface Peer {
  name: string
  url: string
  /** Ends it and the processes that it has started. */
  stop(): Promise<void>
}

/** The program behind the peers: answers at once, without a library. */
const echo = `
const text = { content: [{ type: 'text', text: 'x' }], isError: false }
const tools = [{ name: 'instant', inputSchema: { type: 'object' } }]
const results = {
  initialize: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'echo', version: '1' } },
  'tools/call': text,
  'tools/list': { tools },
}
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line)
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result: results[method] ?? {} }))
})
`

/** Installs the peers in a directory, and starts them. @param directory temporary. @param peers receives each peer. */
export async function startPeers(directory: string, peers: Peer[]): Promise<void> {
  writeFileSync(join(directory, 'package.json'), '{ "private": true }')
  const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
  await promisify(execFile)('npm', ['install', ...flags, ...packages], { cwd: directory })
  const program = join(directory, 'echo.cjs')
  writeFileSync(program, echo)
  const server = { command: process.execPath, args: [program], lifecycle: 'keep-alive' }
  writeFileSync(join(directory, 'mcporter.json'), JSON.stringify({ mcpServers: { echo: server } }))
  const command = `${process.execPath} ${program}`
  const of = {
    supergateway: (port: string) => [
      ...['--stdio', command, '--outputTransport', 'streamableHttp', '--stateful'],
      ...['--port', port, '--logLevel', 'none'],
    ],
    'mcp-proxy': (port: string) => [
      ...['--host', '127.0.0.1', '--port', port, '--server', 'stream', '--', process.execPath, program],
    ],
    mcporter: (port: string) => ['serve', '--http', port, '--servers', 'echo', '--config', 'mcporter.json'],
  }
  for (const [name, args] of Object.entries(of)) {
    const port = await freePort()
    const path = name === 'mcporter' ? '/mcp/echo' : '/mcp'
    const bin = join(directory, 'node_modules/.bin', name)
    const options = { cwd: directory, env: { PATH: process.env.PATH, HOME: directory } }
    const child = spawn(process.execPath, [bin, ...args(String(port))], { ...options, stdio: 'ignore' })
    const stop = async () => {
      child.kill('SIGTERM')
      // It starts a daemon, which outlives it.
      const daemon = ['daemon', 'stop', '--config', 'mcporter.json']
      if (name === 'mcporter') await promisify(execFile)(process.execPath, [bin, ...daemon], options)
    }
    peers.push({ name, url: `http://127.0.0.1:${port}${path}`, stop })
    await listening(name, port, child)
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
