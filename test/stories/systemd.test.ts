import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { freePort, Place, program, within } from '../support/glovebox.ts'

const run = promisify(execFile)
const hasSystemd = await run('systemd-analyze', ['--version']).then(
  () => true,
  () => false,
)

const place = new Place()
const units = join(place.directory, 'units')
const unit = join(units, 'glovebox.service')
const config = join(place.directory, 'glovebox.yaml')
let port: number
let text: string

const install = (...words: string[]) =>
  run(program, ['install-service', '--directory', units, '--config', config, ...words])

/** The value of one directive. */
const directive = (name: string): string => new RegExp(`^${name}=(.*)$`, 'm').exec(text)?.[1] ?? ''

beforeAll(async () => {
  port = await freePort()
  writeFileSync(
    config,
    `home: ${place.directory}/home
state_dir: ${place.directory}/state
front_uid: ${place.frontUid}
front_gid: ${place.frontUid}
port: ${port}
dev: true
drain_s: 1
slots_ready: 1
`,
  )
  await install()
  text = readFileSync(unit, 'utf8')
})
afterAll(() => place.remove())

describe('the unit that install-service writes', () => {
  it('is written once, and replaced only on request when it has other content', async () => {
    expect((await install('--json')).stdout).toContain('"config_created": false')
    writeFileSync(unit, `${text}# changed\n`)
    await expect(install()).rejects.toMatchObject({ code: 78, stderr: expect.stringContaining('--force') })
    await install('--force')
    expect(readFileSync(unit, 'utf8')).toBe(text)
  })

  it('creates a configuration file with which a server would start', async () => {
    const created = join(place.directory, 'etc/new.yaml')
    await run(program, ['install-service', '--directory', join(place.directory, 'other'), '--config', created])
    const { stdout } = await run(program, ['config', 'show', '--config', created])
    expect(stdout).not.toContain(created)
  })

  it('refuses a path that a unit cannot contain', async () => {
    const spaced = join(place.directory, 'with space.yaml')
    const refused = run(program, ['install-service', '--directory', units, '--config', spaced])
    await expect(refused).rejects.toMatchObject({ code: 78, stderr: expect.stringContaining('with space') })
  })

  it.skipIf(!hasSystemd)('is accepted by systemd, which finds little to expose', async () => {
    const verified = await run('systemd-analyze', ['verify', unit])
    expect(verified.stderr.split('\n').filter((line) => line.includes('glovebox'))).toEqual([])
    const { stdout } = await run('systemd-analyze', ['security', '--offline=true', '--no-pager', unit])
    // The capabilities for namespaces, mounts and other users cost most of it.
    expect(Number(/Overall exposure level for \S+: ([\d.]+)/.exec(stdout)?.[1])).toBeLessThan(7)
  })
})

/** A socket of the test in the place of the service manager. Node.js has none for datagrams. */
const receiver = `
import socket, sys
end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
end.bind(sys.argv[1])
print('bound', flush=True)
while True: print(end.recv(4096).decode().replace(chr(10), ' '), flush=True)
`

describe('the command of the unit', () => {
  it('serves under the restrictions of the unit, and reports to the service manager', async () => {
    const socket = join(place.directory, 'notify')
    const manager = spawn('python3', ['-c', receiver, socket], { stdio: ['ignore', 'pipe', 'inherit'] })
    const lines = createInterface({ input: manager.stdout })[Symbol.asyncIterator]()
    const next = async (prefix: string): Promise<string> => {
      for (;;) {
        const { value, done } = await within(lines.next(), 60_000, prefix)
        if (done) throw new Error('the receiver ended')
        if (value.startsWith(prefix)) return value
      }
    }
    await next('bound')
    // What systemd does for ProtectSystem=strict, CapabilityBoundingSet and NoNewPrivileges.
    expect([directive('ProtectSystem'), directive('NoNewPrivileges')]).toEqual(['strict', 'yes'])
    const writable = directive('ReadWritePaths').split(' ')
    expect(writable).toEqual([join(place.directory, 'home'), join(place.directory, 'state')])
    const bounds = directive('CapabilityBoundingSet').toLowerCase().replaceAll('cap_', '+').split(' ')
    const protect = `set -e
      for path in ${writable.join(' ')} /run/glovebox; do mkdir -p $path; mount --bind $path $path; done
      mount -o remount,bind,ro /
      exec setpriv --no-new-privs --bounding-set=-all,${bounds.join(',')} --inh-caps=-all -- ${directive('ExecStart')}`
    const server = spawn(
      'setpriv',
      ['--pdeathsig', 'TERM', '--', 'unshare', '--mount', '--propagation', 'slave', 'sh', '-c', protect],
      {
        stdio: ['ignore', 'ignore', 'inherit'],
        env: { PATH: process.env.PATH, NOTIFY_SOCKET: socket, WATCHDOG_USEC: '400000', GLOVEBOX_LOG_LEVEL: 'warn' },
      },
    )
    const ended = once(server, 'exit')
    try {
      expect(await next('READY')).toBe('READY=1 STATUS=Serving')
      expect(await next('WATCHDOG')).toBe('WATCHDOG=1')
      const url = `http://127.0.0.1:${port}`
      const result = await execute(url, 'bash', 'echo kept > file; cat file', { thread_id: 'one' })
      expect(result.stdout).toBe('kept\n')
      const { stdout } = await run('cat', [`/proc/${server.pid}/status`])
      expect(stdout).toMatch(/^NoNewPrivs:\t1$/m)
      await expect(run('nsenter', ['-m', '-t', `${server.pid}`, 'touch', '/etc/written'])).rejects.toThrow('Read-only')
      server.kill('SIGTERM')
      expect(await next('STOPPING')).toBe('STOPPING=1 STATUS=Ending runs')
      expect((await within(ended, 60_000, 'the server ends'))[0]).toBe(0)
    } finally {
      server.kill('SIGTERM')
      await ended
      manager.kill('SIGKILL')
    }
  })
})
