/** What programs reach through the network of a run, and how they fail where they do not. */
import { once } from 'node:events'
import { readdirSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { callTool, type Execution, execute } from '../support/calls.ts'
import { type Glovebox, until } from '../support/glovebox.ts'
import { newKey, runCommand } from '../support/keys.ts'
import { indexesOfThisMachine, printed } from '../support/machine-network.ts'
import { disposablePlaces } from '../support/story.ts'

type Networked = Execution & { network?: { host: string; port: number; verdict: string; bytes: number }[] }

const machine = await indexesOfThisMachine()

describe('a run that may reach package indexes', () => {
  const place = disposablePlaces()
  let server: Glovebox
  beforeAll(async () => {
    const here = place()
    const file = join(here.directory, 'glovebox.yaml')
    const indexes = JSON.stringify(machine.rules)
    writeFileSync(file, `network: packages\npackage_indexes: ${indexes}\nlimit_memory: 1GiB\nlimit_home: 1GiB\n`)
    server = await here.start('--dev', '--config', file)
  })

  const bash = async (code: string, more: object = {}): Promise<Networked> =>
    (await execute(server.url, 'bash', code, { timeout: 120, ...more })) as Networked

  const direct = 'unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy;'

  it.skipIf(!machine.isReached)(
    'installs a package with pip, also without the variables, and imports it later',
    async () => {
      const thread = { thread_id: 'pip' }
      const installed = await bash('python3 -m pip install -q --no-cache-dir --target lib humanize && ls lib', thread)
      expect(installed).toMatchObject({ exit_code: 0, stdout: expect.stringContaining('humanize') })
      const later = await bash('PYTHONPATH=lib python3 -c "import humanize; print(humanize.__name__)"', thread)
      expect(later.stdout).toBe('humanize\n')
      const without = await bash(`${direct} python3 -m pip download -q --no-deps --no-cache-dir idna && ls`)
      expect(without.stdout).toContain('idna')
    },
    120_000,
  )

  it.skipIf(!machine.isReached)(
    'installs a package and its dependencies with npm',
    async () => {
      const { stdout, network } = await bash('npm install --silent is-odd >/dev/null && ls node_modules', {
        network: true,
      })
      expect(stdout).toBe('is-number\nis-odd\n')
      expect(network).toContainEqual(expect.objectContaining({ port: 443, verdict: 'allowed' }))
    },
    120_000,
  )

  it.skipIf(!machine.isReached || printed('apt-get', '--version') === '')(
    'downloads a package with apt',
    async () => {
      const code = 'apt-get update -qq 2>/dev/null; apt-get download -qq hello && ls *.deb'
      expect(await bash(code)).toMatchObject({ exit_code: 0, stdout: expect.stringMatching(/^hello_.*deb\n$/) })
    },
    180_000,
  )

  it('fails at once and says why, in the error of each program', async () => {
    const programs = [
      ['bash', 'curl -sSv https://example.com', 'network policy packages: example.com:443 is not listed'],
      ['bash', 'curl -sS http://example.com', 'network policy packages: example.com:80 is not listed'],
      ['python', 'import urllib.request as u; u.urlopen("https://example.com")', 'network policy packages'],
      ['node', 'fetch("https://example.com")', 'fetch failed'],
      ['bash', `${direct} curl -sS https://example.com`, 'Could not resolve host'],
      ['bash', `${direct} curl -sS http://192.0.2.1`, 'refused 192.0.2.1:80'],
    ] as const
    for (const [language, code, message] of programs) {
      const { body } = await callTool(server.url, { language, code })
      const text = body.result?.content[0]?.text ?? ''
      expect([code, text]).toEqual([code, expect.stringContaining(message)])
      expect(text).not.toContain('a run has no network')
    }
    const { body } = await callTool(server.url, { language: 'node', code: 'fetch("https://example.com")' })
    expect(body.result?.content[0]?.text).toContain('the network policy of this run refused example.com:443')
  })

  it('reaches its own servers on loopback directly', async () => {
    const code = `
import http.server, threading, urllib.request
server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
for host in ('127.0.0.1', 'localhost'):
    print(urllib.request.urlopen(f'http://{host}:{server.server_port}/').status)
`
    const { stdout, network } = (await execute(server.url, 'python', code, { network: true })) as Networked
    expect({ stdout, network }).toEqual({ stdout: '200\n200\n', network: [] })
  })
})

describe('a run that may reach some destinations', () => {
  const place = disposablePlaces()
  let server: Glovebox
  let web: Server
  let port: number
  let brokerUid: number
  beforeAll(async () => {
    web = createServer((request, response) => {
      if (request.url === '/waits') return void web.emit('waits')
      if (request.url === '/fatal') for (const pid of processesOfUser(brokerUid)) process.kill(pid, 'SIGKILL')
      response.end(`${request.method} ${request.url}\n`)
    }).listen(0, '127.0.0.1')
    await new Promise((resolve) => web.once('listening', resolve))
    port = (web.address() as AddressInfo).port
    const here = place()
    const file = join(here.directory, 'glovebox.yaml')
    brokerUid = here.frontUid + 32
    writeFileSync(
      file,
      `egress_uid: ${brokerUid}\nnetwork: allow\nnetwork_allow: ["localhost:${port}", "127.0.0.1:${port}"]\nlimit_connections: 50\n`,
    )
    server = await here.start('--dev', '--config', file)
  })
  afterAll(() => void web.close())

  it('is described by the tool', async () => {
    const { description } = await toolOf(server.url)
    expect(description).toContain(`The network reaches only localhost:${port}, 127.0.0.1:${port}.`)
  })

  it('reaches them through the proxy in every language, in fresh and in prewarmed jails', async () => {
    const url = `http://localhost:${port}/x`
    const programs = [
      ['bash', `curl -sS --noproxy '' ${url}`],
      [
        'python',
        `import os, urllib.request as u; os.environ['no_proxy'] = ''; print(u.urlopen('${url}').read().decode(), end='')`,
      ],
      [
        'node',
        `require('http').get({ host: '127.0.0.1', port: 3128, path: '${url}' }, (answer) => answer.pipe(process.stdout))`,
      ],
    ] as const
    for (const [language, code] of [...programs, ...programs])
      expect([code, (await execute(server.url, language, code)).stdout]).toEqual([code, 'GET /x\n'])
    const metrics = async () => (await fetch(`${server.url}/metrics`)).text()
    await until(
      async () => (await metrics()).includes('glovebox_network_connections_total{of="run",verdict="allowed"} 6'),
      'the connections are counted',
    )
    expect(await metrics()).toMatch(/glovebox_network_bytes_total\{of="run",direction="sent"\} [1-9]/)
    expect(await metrics()).toContain('glovebox_network_connections{of="sandbox"} 0')
  })

  it('loses what its profile no longer allows while it runs, also on a connection that is open', async () => {
    const here = place()
    const { url } = await here.start('--no-dev')
    const profile = join(here.directory, 'profile.yaml')
    const setProfile = async (settings: string) => {
      writeFileSync(profile, settings)
      const { code, stderr } = await runCommand(here, ['profiles', 'set', 'changing', profile, '--org', 'acme'])
      if (code !== 0) throw new Error(stderr)
    }
    await newKey(here, '--org', 'acme')
    await setProfile(`network: allow\nnetwork_allow: ["127.0.0.1:${port}"]\n`)
    const { headers } = await newKey(here, '--org', 'acme', '--profile', 'changing')
    const code = `
import socket
def connect():
    one = socket.create_connection(('127.0.0.1', 3128))
    one.sendall(b'CONNECT 127.0.0.1:${port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
    return one, one.recv(4096).split(b'\\r\\n')[0].decode()
one, answer = connect()
print(answer)
one.sendall(b'GET /waits HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n')
try: print(one.recv(4096))
except ConnectionError: print(b'')
print(connect()[1])`
    const asked = once(web, 'waits')
    const running = execute(url, 'python', code, { timeout: 60, thread_id: 'changing' }, headers)
    await asked
    await setProfile('network: allow\nnetwork_allow: [example.com]\n')
    const { stdout, stderr } = await running
    expect({ stdout, stderr }).toEqual({
      stdout: expect.stringMatching(/^HTTP\/1.1 200 .*\nb''\nHTTP\/1.1 403 .*is not listed\n$/),
      stderr: '',
    })
  })

  it('are reached again after the broker died', async () => {
    const url = `http://localhost:${port}`
    const code = `curl -s --noproxy '' ${url}/fatal; until curl -sf --noproxy '' ${url}/again; do sleep 0.1; done`
    expect((await execute(server.url, 'bash', code, { timeout: 120 })).stdout).toBe('GET /again\n')
  })
})

/** Numbers of the processes of a user. */
const processesOfUser = (uid: number): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && statSync(`/proc/${name}`, { throwIfNoEntry: false })?.uid === uid)
    .map(Number)

const toolOf = async (url: string): Promise<{ description: string }> => {
  const response = await fetch(`${url}/mcp`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' }),
  })
  const { result } = (await response.json()) as { result: { tools: { name: string; description: string }[] } }
  return result.tools.find(({ name }) => name === 'sandbox_execute')!
}
