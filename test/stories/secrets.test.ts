/** Secrets that programs use and never have. */
import { execFileSync } from 'node:child_process'
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import type { SecureContext } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Leaves, makeAuthority } from '../../src/egress/secrets/authority.ts'
import { type Execution, execute, post } from '../support/calls.ts'
import { type Glovebox, type Place, until } from '../support/glovebox.ts'
import { runCommand } from '../support/keys.ts'
import { processesOf } from '../support/machine.ts'
import { plainServer } from '../support/stdio-upstream.ts'
import { disposablePlaces } from '../support/story.ts'

type Networked = Execution & { network?: { host: string; port: number; verdict: string }[] }

const value = 'sk-planted-5f0c9a7be1d24c83'
/** A name of this machine that is not localhost, which programs reach without a proxy. */
const host = hostname()
const address = await lookup(host).then(
  ({ address: found }) => found,
  () => '',
)

describe.skipIf(!address.startsWith('127.'))('a run of a profile with a secret', () => {
  const newPlace = disposablePlaces()
  const received: string[] = []
  let place: Place
  let server: Glovebox
  let url: string
  let context: SecureContext
  const web = createServer({ SNICallback: (_name, done) => done(null, context) }, (request, response) => {
    const authorization = request.headers.authorization ?? ''
    received.push(authorization)
    response.setHeader('x-echo', authorization)
    request.on('end', () => response.end(`you sent ${authorization}`)).resume()
  })
  beforeAll(async () => {
    const outer = await makeAuthority()
    context = await new Leaves(outer).contextFor(host)
    web.listen(0, address)
    await once(web, 'listening')
    const { port } = web.address() as AddressInfo
    url = `https://${host}:${port}/`
    place = newPlace()
    const caFile = join(place.directory, 'ca.pem')
    writeFileSync(caFile, outer.certificate)
    chmodSync(caFile, 0o644)
    const config = join(place.directory, 'glovebox.yaml')
    const allowed = JSON.stringify([`${host}:*`, '127.0.0.0/8:*'])
    writeFileSync(config, `network: allow\nnetwork_allow: ${allowed}\nsecrets: [API_KEY]\negress_ca_file: ${caFile}\n`)
    server = await place.start('--config', config)
    const file = join(place.directory, 'value')
    writeFileSync(file, `${value}\n`)
    await expect(execute(server.url, 'bash', 'true')).rejects.toThrow('names the secret API_KEY, which does not exist')
    const words = ['secrets', 'set', 'API_KEY', '--host', `${host}:${port}`, '--value-file', file]
    expect((await runCommand(place, words)).stdout).toMatch(/^GLOVEBOX_SECRET_[0-9a-f]{32}\n$/)
    writeFileSync(file, '')
  })
  afterAll(() => void web.close())

  const run = async (language: string, code: string) =>
    (await execute(server.url, language, code, { network: true, timeout: 60 })) as Networked

  const programs: Record<string, [string, string]> = {
    curl: ['bash', 'curl -sS -i -H "Authorization: Bearer $API_KEY" URL'],
    'curl without a proxy': ['bash', 'curl -sS -i --noproxy "*" -H "Authorization: Bearer $API_KEY" URL'],
    Python: [
      'python',
      'import os, urllib.request as u\nr = u.Request("URL", headers={"Authorization": "Bearer " + os.environ["API_KEY"]})\nprint(u.urlopen(r).read().decode())',
    ],
    'Node.js': [
      'node',
      'fetch("URL", { headers: { authorization: "Bearer " + process.env.API_KEY } }).then((r) => r.text()).then(console.log)',
    ],
    wget: ['bash', 'wget -qO- --ca-certificate "$SSL_CERT_FILE" --header "Authorization: Bearer $API_KEY" URL'],
    git: ['bash', 'git -c http.extraHeader="Authorization: Bearer $API_KEY" ls-remote URL 2>&1; true'],
  }
  it.each(Object.entries(programs))(
    'is authenticated with %s, twice, and sees its placeholder alone',
    async (_name, [language, code]) => {
      for (const _ of [1, 2]) {
        received.length = 0
        const { stdout, stderr, network } = await run(language, code.replace('URL', url))
        expect({ stderr, received: received[0] }).toEqual({ stderr: '', received: `Bearer ${value}` })
        expect(stdout).not.toContain('planted')
        if (!code.startsWith('git')) expect(stdout).toMatch(/you sent Bearer GLOVEBOX_SECRET_[0-9a-f]{32}/)
        expect(network).toMatchObject([{ host, verdict: 'allowed' }])
      }
    },
    120_000,
  )

  it('is refused where it sends the placeholder elsewhere, which its result and the audit name', async () => {
    const before = received.length
    const { stdout, network, trace_id } = await run('bash', `curl -sS ${url}$API_KEY`)
    expect(stdout).toMatch(/^network secrets: API_KEY is not allowed in the path/)
    expect(received.length).toBe(before)
    expect(network).toContainEqual(expect.objectContaining({ host, verdict: 'refused_secret' }))
    const { stdout: audit } = await runCommand(place, ['audit', 'list', '--json'])
    expect(audit).toContain(trace_id)
    expect(audit).toContain('refused_secret')
  })

  it('is the credential of an upstream that is a program', async () => {
    const settings = join(place.directory, 'upstream.yaml')
    const hosts = JSON.stringify([new URL(url).host])
    const network = `{ policy: allow, rules: ['${host}:*', '127.0.0.0/8:*'] }`
    const content = `credential: { in: env, name: API_TOKEN, values: [upstream-planted-1] }
program: { credential_hosts: ${hosts}, network: ${network} }
`
    writeFileSync(settings, content, { mode: 0o600 })
    const { command, args } = plainServer()
    const words = ['upstreams', 'add', 'acme/sender', '--secrets-file', settings, '--', command, ...args]
    expect(await runCommand(place, words)).toMatchObject({ code: 0 })
    const call = async (name: string, given: object) => {
      const asked = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: given } }
      const headers = { 'content-type': 'application/json' }
      const response = await fetch(`${server.url}/acme/sender/sse`, {
        ...{ method: 'POST', headers, body: JSON.stringify(asked) },
      })
      return response.text()
    }
    received.length = 0
    const sent = await call('send', { url })
    expect({ sent, received }).toEqual({
      sent: expect.stringMatching(/you sent Bearer GLOVEBOX_SECRET_[0-9a-f]{32}/),
      received: ['Bearer upstream-planted-1'],
    })
    expect(await call('environments', {})).not.toContain('upstream-planted')
    expect(await call('send', { url: url.replace('https:', 'http:') })).not.toContain('upstream-planted')
    expect(JSON.stringify(server.log)).not.toContain('upstream-planted')
  })

  it('works in a sandbox', async () => {
    const made = await post(`${server.url}/v1/sandboxes`, { name: 'main' })
    expect(made.status).toBe(201)
    const command = { command: 'bash', args: ['-c', programs.curl![1].replace('URL', url)] }
    const { body } = await post<Execution>(`${server.url}/v1/sandboxes/main/commands`, command)
    expect(body).toMatchObject({ stderr: '', stdout: expect.stringMatching(/you sent Bearer GLOVEBOX_SECRET_/) })
    expect(received.at(-1)).toBe(`Bearer ${value}`)
  })

  it('follows a changed secret in a sandbox that runs, whose connections are in its figures', async () => {
    const file = join(place.directory, 'value')
    const change = async (content: string) => {
      writeFileSync(file, content)
      const words = ['secrets', 'set', 'API_KEY', '--host', new URL(url).host, '--value-file', file]
      expect((await runCommand(place, words)).code).toBe(0)
      const command = { command: 'bash', args: ['-c', programs.curl![1].replace('URL', url)] }
      const isReceived = async () => {
        await post(`${server.url}/v1/sandboxes/main/commands`, command)
        return received.at(-1) === `Bearer ${content}`
      }
      await until(isReceived, 'the changed secret is received')
    }
    await change('sk-another-31415926')
    await change(value)
    writeFileSync(file, '')
    type Figures = Record<'network_received_bytes' | 'network_sent_bytes', number>
    const read = async () =>
      (await fetch(`${server.url}/v1/sandboxes/main/metrics`)).json() as Promise<{ figures: Figures }>
    const before = await read()
    expect(before).toMatchObject({ figures: { network: [{ host, verdict: 'allowed' }] } })
    expect(before.figures.network_received_bytes).toBeGreaterThan(0)
    // What a program sends is counted, and not as received.
    const upload = `head -c 300000 /dev/zero | curl -sS --data-binary @- ${url}`
    await post(`${server.url}/v1/sandboxes/main/commands`, { command: 'bash', args: ['-c', upload] })
    const grown = (after: Figures, name: keyof Figures) => after[name] - before.figures[name]
    await until(async () => grown((await read()).figures, 'network_sent_bytes') >= 300_000, 'sent bytes are counted')
    const { figures } = await read()
    expect(grown(figures, 'network_sent_bytes')).toBeLessThan(400_000)
    expect(grown(figures, 'network_received_bytes')).toBeLessThan(100_000)
  })

  it('has only the secrets that a sandbox chooses, also after a start with other settings', async () => {
    const printed = async () => {
      const command = { command: 'bash', args: ['-c', 'echo "[$API_KEY]"'] }
      return (await post<Execution>(`${server.url}/v1/sandboxes/chosen/commands`, command)).body.stdout
    }
    const unknown = await post(`${server.url}/v1/sandboxes`, { name: 'chosen', secrets: ['OTHER'] })
    expect([unknown.status, JSON.stringify(unknown.body)]).toEqual([
      400,
      expect.stringContaining('does not name OTHER'),
    ])
    const made = await post(`${server.url}/v1/sandboxes`, { name: 'chosen', secrets: [] })
    expect(made).toMatchObject({ status: 201, body: { secrets: [] } })
    expect(await printed()).toBe('[]\n')
    await post(`${server.url}/v1/sandboxes/chosen/stop`, {})
    const given = { sandbox: 'chosen', config: { memory: 128 } }
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'sandbox_start', arguments: given } }
    await post(`${server.url}/mcp?toolsets=sandbox`, call)
    expect(await printed()).toBe('[]\n')
    await fetch(`${server.url}/v1/sandboxes/chosen`, { method: 'DELETE' })
    const all = await post(`${server.url}/v1/sandboxes`, { name: 'chosen', secrets: ['API_KEY'] })
    expect(all).toMatchObject({ status: 201, body: { secrets: ['API_KEY'] } })
    expect(await printed()).toMatch(/^\[GLOVEBOX_SECRET_[0-9a-f]{32}\]\n$/)
    await fetch(`${server.url}/v1/sandboxes/chosen`, { method: 'DELETE' })
  })

  it('has the connections of a sandbox in the audit when it ends', async () => {
    expect((await fetch(`${server.url}/v1/sandboxes/main`, { method: 'DELETE' })).ok).toBe(true)
    const lines = async () => {
      const listed = JSON.parse((await runCommand(place, ['audit', 'list', '--json'])).stdout) as { action: string }[]
      return listed.filter(({ action }) => action === 'sandbox.network')
    }
    await expect
      .poll(lines, { timeout: 15_000 })
      .toMatchObject([{ details: { network: { refused: 0 } }, personal: { network: [{ host, verdict: 'allowed' }] } }])
  })

  it('leaves the value in no file, log, metric, environment or command line', async () => {
    const forms = [value, Buffer.from(value).toString('base64').slice(0, -3), encodeURIComponent(value)]
    const holds = (text: string) => forms.some((form) => text.includes(form))
    const found = filesBelow(place.directory).filter((file) => holds(readFileSync(file, 'latin1')))
    expect(found).toEqual([])
    expect(holds(JSON.stringify(server.log))).toBe(false)
    expect(holds(await (await fetch(`${server.url}/metrics`)).text())).toBe(false)
    for (const words of [
      ['audit', 'list', '--json'],
      ['secrets', 'list', '--json'],
    ])
      expect(holds((await runCommand(place, words)).stdout)).toBe(false)
    const processes = processesOf(place)
    expect(processes.length).toBeGreaterThan(2)
    for (const { pid } of processes)
      for (const name of ['environ', 'cmdline']) expect(holds(read(`/proc/${pid}/${name}`))).toBe(false)
    const broker = processes.find(({ words }) => words.includes('broker'))
    expect(read(`/proc/${broker?.pid}/limits`)).toMatch(/Max core file size +0 +0/)
  })

  it('uses the value again after the master key was replaced', async () => {
    await server.stop()
    expect((await runCommand(place, ['secrets', 'rotate'])).code).toBe(0)
    server = await place.start('--config', join(place.directory, 'glovebox.yaml'))
    await run('bash', programs.curl![1].replace('URL', url))
    expect(received.at(-1)).toBe(`Bearer ${value}`)
  })
})

/** Without other filesystems, such as the machine's own programs in the root of slots. */
function filesBelow(directory: string): string[] {
  const words = [directory, '-xdev', '-type', 'f', '-size', '-64M', '-print0']
  return execFileSync('find', words, { encoding: 'utf8' }).split('\0').filter(Boolean)
}

function read(file: string): string {
  try {
    return readFileSync(file, 'latin1')
  } catch {
    return ''
  }
}
