import { openApp } from '../app.ts'
import { openInstance } from '../base/instance.ts'
import { InstanceLock } from '../base/instance-lock.ts'
import type { Config } from '../config.ts'
import { createLog } from '../observe/log.ts'
import { announceReady, ended } from './child-lifecycle.ts'
import { exitCodes, type Io } from './process-io.ts'
import { version } from './version.ts'

/** The front process: serves until it is told to end, or its supervisor is gone. @throws StartRefused. */
export async function front(config: Config, io: Io): Promise<number> {
  const log = createLog({
    level: config.logLevel,
    format: config.logFormat,
    destination: io.stderr,
    bindings: { process: 'front' },
  })
  const lock = await InstanceLock.acquire(config.home, 'front', true)
  const app = await openApp(config, openInstance(config.home, config.stateDir), version, log)
  announceReady()
  log.info({ url: app.url }, 'the front serves')
  io.stdout.write(config.dev ? welcome(app.url) : welcomeWithKeys(app.url, config))
  const reason = await ended(io)
  log.info({ reason }, 'the front ends')
  await app.close(reason === 'asked' ? 'shutdown' : 'leave')
  lock.release()
  return exitCodes.ok
}

/** What someone who just typed `npm start` needs next. */
function welcome(url: string): string {
  const call = JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name: 'sandbox_execute', arguments: { code: 'print(6 * 7)', language: 'python' } },
  })
  return `
  Glovebox is serving MCP at ${url}/mcp (dev mode: this machine only, no key needed)

  Add it to Claude Code:
    claude mcp add --transport http glovebox ${url}/mcp

  Run some code:
    curl -s ${url}/mcp -H 'Content-Type: application/json' -d '${call}'

`
}

/** The same where callers need a key. */
function welcomeWithKeys(url: string, { home }: Config): string {
  return `
  Glovebox is serving MCP at ${url}/mcp (callers need a key)

  Make one:
    glovebox keys create --home ${home}

  Add it to Claude Code:
    claude mcp add --transport http glovebox ${url}/mcp --header "Authorization: Bearer KEY"

`
}
