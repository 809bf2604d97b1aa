import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { builtProgram } from '../support/glovebox.ts'
import { manageKeys, runCommand } from '../support/keys.ts'
import { openStory } from '../support/story.ts'

const story = openStory(['--no-dev', '--log-level', 'debug'], { program: builtProgram })

/** Runs an administration command beside the server, as an operator does. */
const glovebox = (...words: string[]) => runCommand(story.place, words)

const run = (secret: string, code: string) =>
  fetch(`${story.url}/v1/sandbox/execute`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': secret },
    body: JSON.stringify({ language: 'bash', code }),
  })

describe('administration on the command line', () => {
  it('creates an organization with its own profile and key, which can run code immediately', async () => {
    expect((await glovebox('orgs', 'create', 'acme')).stdout).toMatch(/^org_/)
    expect((await glovebox('orgs', 'create', 'acme')).code).toBe(64)
    const file = join(story.place.directory, 'shell.yaml')
    writeFileSync(file, 'languages: [bash]\ndefault_language: bash\nenv: { WHERE: profile }\n')
    expect(await glovebox('profiles', 'set', 'shell', file, '--org', 'acme')).toMatchObject({ code: 0, stderr: '' })
    expect((await glovebox('profiles', 'list', '--org', 'acme')).stdout).toMatch(/shell +acme/)
    const made = await glovebox('keys', 'create', '--org', 'acme', '--profile', 'shell', '--env', 'OWN=key')
    const answer = await run(made.stdout.trim(), 'echo $WHERE $OWN')
    expect(await answer.json()).toMatchObject({ stdout: 'profile key\n' })
    expect((await glovebox('profiles', 'remove', 'shell', '--org', 'acme')).code).toBe(64)
    expect((await glovebox('usage', '--org', 'acme')).stdout).toMatch(/key_\S+ +1 /)
  })

  it('rotates, changes and revokes a key', async () => {
    const { stderr, stdout: first } = await manageKeys(story.place, ['create', '--org', 'beta'])
    const id = /key_[\w-]+/.exec(stderr)?.[0] ?? ''
    const second = (await glovebox('keys', 'rotate', id)).stdout.trim()
    expect([(await run(first.trim(), 'true')).status, (await run(second, 'true')).status]).toEqual([401, 200])
    expect((await glovebox('keys', 'update', id, '--tools', 'execution_get')).code).toBe(0)
    expect((await run(second, 'true')).status).toBe(403)
    expect((await glovebox('keys', 'revoke', id)).code).toBe(0)
    expect((await run(second, 'true')).status).toBe(401)
    const refused = () => story.server.log.find(({ msg, status }) => msg === 'answered' && status === 401)
    await expect.poll(refused).toMatchObject({ level: 'info', address: '127.0.0.1', key_id: null, org_id: null })
  })

  it('finds in the log who received which answer, and how each run ended', async () => {
    const made = await manageKeys(story.place, ['create', '--org', 'zeta'])
    const key_id = /key_[\w-]+/.exec(made.stderr)?.[0]
    const response = await run(made.stdout.trim(), 'echo out; exit 3')
    const { trace_id } = (await response.json()) as { trace_id: string }
    const org_id = expect.stringMatching(/^org_/)
    const lineOf = (msg: string) => story.server.log.find((line) => line.msg === msg && line.trace_id === trace_id)
    await expect.poll(() => lineOf('answered')).toBeDefined()
    const who = { org_id, key_id, trace_id }
    const route = { method: 'POST', route: '/v1/sandbox/execute', status: 200, address: '127.0.0.1' }
    expect(lineOf('answered')).toMatchObject({ level: 'debug', ...who, ...route, request_id: expect.any(String) })
    const figures = { duration_ms: expect.any(Number), memory_peak_bytes: expect.any(Number), stdout_bytes: 4 }
    expect(lineOf('run ended')).toMatchObject({ level: 'info', ...who, ending: 'exited', exit_code: 3, ...figures })
  })

  it('sets limits that take effect within a second', async () => {
    const key = (await manageKeys(story.place, ['create', '--org', 'gamma'])).stdout.trim()
    expect((await glovebox('limits', '--org', 'gamma', '--runs-per-minute', '0')).stdout).toContain(
      '"runs_per_minute": 0',
    )
    await expect.poll(async () => (await run(key, 'true')).status, { timeout: 10_000 }).toBe(429)
    expect((await glovebox('limits', '--org', 'gamma', '--runs-per-minute', 'none')).stdout.trim()).toBe('{}')
    await expect.poll(async () => (await run(key, 'true')).status, { timeout: 10_000 }).toBe(200)
  })

  it('creates tokens for /admin/v1', async () => {
    const made = await glovebox('tokens', 'create', '--role', 'member', '--name', 'dashboard')
    const orgs = () =>
      fetch(`${story.url}/admin/v1/orgs`, { headers: { authorization: `Bearer ${made.stdout.trim()}` } })
    expect((await orgs()).status).toBe(200)
    expect((await glovebox('tokens', 'list')).stdout).toMatch(/member +all +dashboard/)
    const id = /tok_[\w-]+/.exec(made.stderr)?.[0] ?? ''
    expect((await glovebox('tokens', 'revoke', id)).code).toBe(0)
    expect((await orgs()).status).toBe(401)
    expect((await glovebox('tokens', 'create', '--role', 'king')).code).toBe(64)
  })

  it('shows the retention settings and the webhook signing secret', async () => {
    await glovebox('orgs', 'create', 'delta')
    const kept = await glovebox('history', '--org', 'delta', '--keep-code', 'yes')
    expect(JSON.parse(kept.stdout)).toEqual({ keep_code: true, keep_output: false })
    expect((await glovebox('history', '--org', 'delta', '--keep-code', 'maybe')).code).toBe(64)
    const secret = (await glovebox('webhook-secret', '--org', 'delta')).stdout
    expect(secret).toMatch(/^whsec_/)
    expect((await glovebox('webhook-secret', '--org', 'delta')).stdout).toBe(secret)
    expect((await glovebox('webhook-secret', '--org', 'delta', '--rotate')).stdout).not.toBe(secret)
  })

  it('verifies the audit log and erases the data of a subject', async () => {
    const key = (await manageKeys(story.place, ['create', '--org', 'epsilon'])).stdout.trim()
    await fetch(`${story.url}/v1/sandbox/execute`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': key },
      body: JSON.stringify({ language: 'bash', code: 'echo x >f', thread_id: 'of-ada', subject: 'Ada' }),
    })
    const proof = await glovebox('audit', 'verify')
    expect(proof).toMatchObject({ code: 0, stdout: expect.stringMatching(/^\d+:[0-9a-f]{64}\n$/) })
    expect((await glovebox('audit', 'list', '--org', 'epsilon')).stdout).toMatch(/run +trc_/)
    expect((await glovebox('subjects', 'export', 'Ada', '--org', 'epsilon')).stdout.split('\n')).toHaveLength(4)
    const erased = await glovebox('subjects', 'erase', 'Ada', '--org', 'epsilon')
    expect(erased.stdout).toBe('Erased the data of 1 runs, 1 threads and 1 audit log lines.\n')
    expect((await glovebox('audit', 'verify', '--anchor', proof.stdout.trim())).code).toBe(0)
    expect((await glovebox('audit', 'verify', '--anchor', `1:${'0'.repeat(64)}`)).code).toBe(1)
    expect((await glovebox('audit', 'export', '--org', 'epsilon')).stdout).not.toContain('Ada')
  })

  it('replaces the master key only while no server is running', async () => {
    expect((await glovebox('secrets', 'rotate')).code).not.toBe(0)
  })

  it('keeps the owner of the database when a command is run without the user of the server', async () => {
    const home = join(story.place.directory, 'home')
    const state = join(story.place.directory, 'state')
    const child = spawn(builtProgram, ['orgs', 'list', '--home', home, '--state-dir', state], { stdio: 'ignore' })
    expect(await once(child, 'exit')).toEqual([0, null])
    for (const path of [join(home, 'front'), join(home, 'front', 'glovebox.db')]) {
      expect(statSync(path).uid).toBe(story.place.frontUid)
    }
  })

  it('prints the whole output of a command to a pipe that is read slowly', async () => {
    const { stdout: secret } = await manageKeys(story.place, ['create'])
    const twentyRuns = async () => {
      for (let n = 0; n < 20; n++) await (await run(secret.trim(), 'true')).text()
    }
    await Promise.all(Array.from({ length: 10 }, twentyRuns))
    const whole = (await glovebox('audit', 'export', '--action', 'run')).stdout
    expect(whole.length).toBeGreaterThan(65_536)
    const command = `"$@" | { sleep 2; cat; }`
    const slowly = await runCommand(story.place, ['audit', 'export', '--action', 'run'], ['sh', '-c', command, 'sh'])
    expect(slowly.stdout).toBe(whole)
  })
})
