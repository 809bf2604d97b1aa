import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { type Glovebox, program, within } from '../support/glovebox.ts'
import { slotsOf, tracesOf } from '../support/machine.ts'
import { disposablePlaces } from '../support/story.ts'

const newPlace = disposablePlaces()

describe('glovebox serve', () => {
  const place = newPlace()
  const before = tracesOf(place)
  let server: Glovebox
  beforeAll(async () => {
    server = await place.start()
  })

  it('prints a curl command at start that runs code as printed', async () => {
    expect(server.stdout).toContain(`Glovebox is serving MCP at ${server.url}/mcp`)
    expect(server.stdout).toContain(`claude mcp add --transport http glovebox ${server.url}/mcp`)
    const command = server.stdout.split('\n').find((line) => line.trim().startsWith('curl ')) ?? ''
    const { stdout } = await promisify(execFile)('/bin/sh', ['-c', command])
    expect(JSON.parse(stdout).result.content[0].text).toBe(
      '## Execution Result\n\n**stdout:**\n```\n42\n```\n\n**Exit code:** 0',
    )
  })

  it('reports that it is alive and ready', async () => {
    for (const path of ['/healthz', '/readyz']) expect((await fetch(server.url + path)).status).toBe(200)
  })

  it('serves HTTP as a user without privileges', () => {
    const status = readFileSync(`/proc/${server.frontPid}/status`, 'utf8')
    const field = (name: string) => new RegExp(`^${name}:[ \\t]*(.*?)[ \\t]*$`, 'm').exec(status)?.[1]?.split(/\s+/)
    expect(field('Uid')).toEqual(Array(4).fill(`${place.frontUid}`))
    expect(field('Gid')).toEqual(Array(4).fill(`${place.frontUid}`))
    expect(field('Groups')).toEqual([''])
    expect(field('NoNewPrivs')).toEqual(['1'])
    for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'])
      expect(field(set)).toEqual(['0000000000000000'])
  })

  it('creates slots with the capabilities of the runner, which cannot load modules or access devices', () => {
    const bounds = BigInt(
      `0x${/^CapBnd:\s*(\w+)$/m.exec(readFileSync(`/proc/${server.runnerPid}/status`, 'utf8'))?.[1]}`,
    )
    const has = (capability: number) => (bounds >> BigInt(capability)) % 2n === 1n
    // CAP_SYS_ADMIN, and then CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_MKNOD, CAP_NET_RAW, CAP_SYS_TIME: linux/capability.h
    expect(has(21)).toBe(true)
    expect([16, 17, 27, 13, 25].map(has)).toEqual([false, false, false, false, false])
  })

  it('gives each live slot its own id range', async () => {
    await execute(server.url, 'bash', 'true')
    const slots = slotsOf(place)
    expect(slots.length).toBeGreaterThanOrEqual(2)
    expect(tracesOf(place).idLeases).toHaveLength(slots.length)
  })

  it('rejects a second server with the same home', async () => {
    const second = place.launch('--port', '0')
    expect(await within(second.exited, 10_000, 'the second server is refused')).toEqual({ code: 78, signal: null })
    expect(second.complaint).toMatch(/Another glovebox \(supervisor\) is running with the home directory/)
    expect((await execute(server.url, 'bash', 'echo unharmed')).stdout).toBe('unharmed\n')
  })

  it('exits on SIGTERM with code 0 and leaves only its home', async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null })
    const after = tracesOf(place)
    expect({ ...after, files: [] }).toEqual({ ...before, files: [] })
    expect(readdirSync(`${place.directory}/home`).sort()).toEqual(['front', 'images', 'instance', 'storage'])
    expect(readdirSync(`${place.directory}/home/front`)).toEqual(['glovebox.db', 'master.key'])
    expect(after.files.filter((path) => /slt_|\.sock$/.test(path))).toEqual([])
  })

  it('starts again with its previous state', async () => {
    const again = await place.start()
    expect((await execute(again.url, 'python', 'print("again")')).stdout).toBe('again\n')
    expect(place.runs().length).toBeGreaterThanOrEqual(4)
    expect(await again.stop()).toEqual({ code: 0, signal: null })
    expect({ ...tracesOf(place), files: [] }).toEqual({ ...before, files: [] })
  })
})

describe('a start that cannot succeed', () => {
  it('is rejected where the port is taken, and leaves nothing behind', async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    await once(taken, 'listening')
    const port = (taken.address() as { port: number }).port
    const place = newPlace()
    const before = tracesOf(place)
    const server = place.launch('--port', `${port}`)
    expect(await server.exited).toEqual({ code: 78, signal: null })
    expect(server.complaint).toContain(`Port ${port} on 127.0.0.1 is already in use.`)
    expect(server.complaint).toContain('choose another port with --port')
    taken.close()
    expect({ ...tracesOf(place), files: [] }).toEqual({ ...before, files: [] })
  })

  it.each([
    ['beyond loopback', ['--host', '0.0.0.0'], /loopback/],
    ['with a setting that is none', ['--port', '70000'], /port/],
    ['with fewer slots than runs', ['--slots-max', '2', '--runs-max', '3'], /slots_max|slots-max/],
  ])('is refused %s, and says what to do', async (_what, words, said) => {
    const place = newPlace()
    const server = place.launch('--port', '0', ...words)
    expect(await server.exited).toEqual({ code: 78, signal: null })
    expect(server.complaint).toMatch(said)
  })

  it('is rejected for every user but root', async () => {
    for (const command of ['serve', 'doctor']) {
      const child = spawn('setpriv', ['--reuid=62999', '--regid=62999', '--clear-groups', program, command, '--dev'])
      let said = ''
      child.stderr.on('data', (text) => (said += text))
      const [code] = await once(child, 'exit')
      expect(code).toBe(78)
      expect(said).toMatch(new RegExp(`glovebox ${command} must be started by root`))
    }
  })

  it('is refused where a filter on system calls forbids namespaces, as are the checks of the machine', async () => {
    const unshare = process.arch === 'x64' ? 272 : 97
    const withoutUnshare = `
import ctypes, os, struct, sys
load, equal, error, allow = (0x20, 0, 0, 0), (0x15, 0, 1, ${unshare}), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)
filter = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *each) for each in (load, equal, error, allow)))
program = ctypes.create_string_buffer(struct.pack('HP', 4, ctypes.addressof(filter)))
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, program) == 0
os.execv(sys.argv[1], sys.argv[1:])`
    for (const command of ['serve', 'doctor'])
      await expect(
        promisify(execFile)('python3', ['-c', withoutUnshare, program, command, '--home', newPlace().directory]),
      ).rejects.toMatchObject({
        ...{ code: 78, stdout: '' },
        stderr: expect.stringMatching(/cannot create a mount namespace: .*not permitted\.\n.*docs\/install\.md/),
      })
  })

  it('names a home directory that cannot be used, as the checks of the machine do', async () => {
    const { directory } = newPlace()
    const home = join(directory, 'file')
    writeFileSync(home, '')
    const words = ['--home', home, '--state-dir', join(directory, 'state')]
    const problem = `The home directory ${home} cannot be used: EEXIST`
    await expect(promisify(execFile)(program, ['serve', ...words])).rejects.toMatchObject({
      ...{
        code: 78,
        stdout: '',
        stderr: expect.stringMatching(new RegExp(`^glovebox: ${problem}[^\n]*\n.*--home\\.\n$`)),
      },
    })
    await expect(promisify(execFile)(program, ['doctor', '--json', ...words])).rejects.toMatchObject({
      ...{ code: 78, stderr: '', stdout: expect.stringContaining(`"detail": "${problem}`) },
    })
  })

  it('succeeds under a restrictive umask', async () => {
    const place = newPlace()
    const usual = process.umask(0o077)
    const server = place.launch('--port', '0')
    process.umask(usual)
    await server.ready()
    expect((await execute(server.url, 'bash', 'umask')).stdout).toBe('0022\n')
    expect(await server.stop()).toEqual({ code: 0, signal: null })
  })

  it('is aborted when it is stopped meanwhile, and leaves nothing behind', async () => {
    const place = newPlace()
    const before = tracesOf(place)
    for (const delayMs of [100, 300, 500, 700, 900]) {
      const server = place.launch('--port', '0')
      await sleep(delayMs)
      const stopped = await server.stop()
      // Before it handles signals, SIGTERM ends it; it has created nothing by then.
      if (server.log.length > 0 || stopped.signal === null) expect(stopped).toEqual({ code: 0, signal: null })
      else expect(stopped).toEqual({ code: null, signal: 'SIGTERM' })
      expect({ ...tracesOf(place), files: [] }).toEqual({ ...before, files: [] })
    }
  })
})
