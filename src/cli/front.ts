import type { Command } from 'commander'
import { openApp } from '../app.ts'
import { openInstance } from '../base/instance.ts'
import { InstanceLock } from '../base/instance-lock.ts'
import type { Config } from '../config.ts'
import { createLog } from '../observe/log.ts'
import { ended, Signs } from './child-lifecycle.ts'
import type { Cli } from './command.ts'
import { receiveConfig } from './hand-over.ts'
import { exitCodes, type ProcessIo } from './process-io.ts'
import { recordAddress, removeAddress } from './server-record.ts'
import { version } from './version.ts'

/** Started by the supervisor, which passes the configuration on standard input. */
export function register(program: Command, { io, exit }: Cli): void {
  program.command('front', { hidden: true }).action(async () => exit(await front(await receiveConfig(io.stdin), io)))
}

/** The front process: serves until it is stopped or its supervisor is gone. @throws StartRefused. */
async function front(config: Config, io: ProcessIo): Promise<number> {
  const signs = new Signs()
  const log = createLog({
    level: config.logLevel,
    format: config.logFormat,
    destination: io.stderr,
    bindings: { process: 'front' },
  })
  const lock = await InstanceLock.acquire(config.home, 'front', true)
  const instance = openInstance(config.home, config.stateDir)
  const app = await openApp(config, instance, version, log)
  try {
    recordAddress(instance, app.url)
  } catch (error) {
    log.warn({ err: error }, 'the address could not be recorded: commands on this machine need --url')
  }
  signs.ready()
  log.info({ url: app.url }, 'API server listening')
  io.stdout.write(config.dev ? welcome(app.url) : welcomeWithKeys(app.url, config))
  const reason = await ended(io)
  log.info({ reason }, 'API server stopping')
  removeAddress(instance)
  await app.close(reason === 'stopped' ? 'shutdown' : 'leave')
  lock.release()
  return exitCodes.ok
}

/** The next steps after `npm start`. */
function welcome(url: string): string {
  const call = JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name: 'sandbox_execute', arguments: { code: 'print(6 * 7)', language: 'python' } },
  })
  return `
  Glovebox is serving MCP at ${url}/mcp (development mode: this machine only, no key required)

  Add it to Claude Code:
    claude mcp add --transport http glovebox ${url}/mcp

  Run some code:
    curl -s ${url}/mcp -H 'Content-Type: application/json' -d '${call}'

`
}

/** The next steps when callers need a key. */
function welcomeWithKeys(url: string, { home }: Config): string {
  return `
  Glovebox is serving MCP at ${url}/mcp (callers need a key)

  Create one:
    glovebox keys create --home ${home}

  Add it to Claude Code:
    claude mcp add --transport http glovebox ${url}/mcp --header "Authorization: Bearer KEY"

`
}
