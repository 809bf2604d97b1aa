/** Programs that carry MCP from one transport to the other, between the official client and our server. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { freePort, program, until } from '../support/glovebox.ts'
import { type ClientName, installed } from './packages.ts'

export interface Proxy {
  title: string
  client: ClientName
  /** Whether it passes on output while the code runs. */
  streams: boolean
  /** Starts the proxy. @returns how to reach it, and how to end it. */
  start(server: {
    url: string
    key: string
    directory: string
  }): Promise<{ transport: Transport; end(): Promise<void> }>
}

/** From standard input and output to HTTP. */
const supergateway: Proxy = {
  title: 'supergateway',
  client: 'supergateway',
  streams: false,
  start: async ({ url, key, directory }) => {
    const script = installed('supergateway', 'node_modules/supergateway/dist/index.js')
    const args = [script, '--streamableHttp', `${url}/mcp`, '--oauth2Bearer', key, '--logLevel', 'none']
    const env = { PATH: process.env.PATH ?? '', HOME: directory }
    const transport = new StdioClientTransport({ command: process.execPath, args, env, stderr: 'ignore' })
    return { transport, end: () => Promise.resolve() }
  },
}

/** From HTTP to standard input and output, where `glovebox stdio` carries the messages to the server. */
const mcpProxy: Proxy = {
  title: 'mcp-proxy',
  client: 'mcp-proxy',
  streams: true,
  start: async ({ url, key, directory }) => {
    const keyFile = join(directory, 'key')
    await writeFile(keyFile, key, { mode: 0o600 })
    const port = await freePort()
    const script = installed('mcp-proxy', 'node_modules/mcp-proxy/dist/bin/mcp-proxy.mjs')
    const words = [script, '--host', '127.0.0.1', '--port', `${port}`, '--server', 'stream']
    const own = [program, 'stdio', '--url', url, '--key-file', keyFile]
    const child = spawn(process.execPath, [...words, '--', ...own], {
      stdio: 'ignore',
      env: { PATH: process.env.PATH, HOME: directory },
    })
    const address = new URL(`http://127.0.0.1:${port}/mcp`)
    const answers = () =>
      fetch(address, { method: 'OPTIONS' }).then(
        () => true,
        () => false,
      )
    await until(answers, 'mcp-proxy listens')
    const end = async () => {
      child.kill()
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    }
    return { transport: new StreamableHTTPClientTransport(address) as Transport, end }
  },
}

export const proxies: readonly Proxy[] = [supergateway, mcpProxy]

export const newClient = () => new Client({ name: 'behind-a-proxy', version: '1' })
