/** Proxies of Debian, unpacked from their packages: when installed, they would start serving. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { freePort } from './downloads.ts'

const host = '127.0.0.1'
const readyWithinMs = 10_000
const endsWithinMs = 5_000

export interface Proxy {
  port: number
  /** Resolves when it has ended, and has removed its shared memory. */
  stop(): Promise<void>
}

/** @returns nothing when it is not available. */
export async function startTinyproxy(directory: string): Promise<Proxy | undefined> {
  const root = await unpack(join(directory, 'tinyproxy'), ['tinyproxy-bin'])
  if (root === undefined) return undefined
  const port = await freePort()
  const file = join(directory, 'tinyproxy.conf')
  writeFileSync(file, `Port ${port}\nListen ${host}\nMaxClients 500\nTimeout 600\nAllow ${host}\nLogLevel Critical\n`)
  return whenReady(port, spawn(join(root, 'usr/bin/tinyproxy'), ['-d', '-c', file], { stdio: 'ignore' }))
}

/** @returns nothing when it is not available. */
export async function startSquid(directory: string): Promise<Proxy | undefined> {
  const libraries = ['libecap3', 'libltdl7', 'libnetfilter-conntrack3', 'libnfnetlink0', 'libtdb1']
  const root = await unpack(join(directory, 'squid'), ['squid', 'squid-common', 'squid-langpack', ...libraries])
  if (root === undefined) return undefined
  const port = await freePort()
  const file = join(directory, 'squid.conf')
  // It gives up its privileges before it reads some of its files.
  chmodSync(directory, 0o755)
  writeFileSync(file, squidConfiguration(port, join(root, 'usr/share')))
  const folders = readdirSync(join(root, 'usr/lib')).map((name) => join(root, 'usr/lib', name))
  const env = { PATH: process.env.PATH ?? '', LD_LIBRARY_PATH: [...folders, join(root, 'lib')].join(':') }
  return whenReady(
    port,
    spawn(join(root, 'usr/sbin/squid'), ['-N', '-n', `bench${process.pid}`, '-f', file], { stdio: 'ignore', env }),
  )
}

/** Without a cache and without logs, as the jail has none. */
const squidConfiguration = (port: number, share: string): string => `
http_port ${host}:${port}
pid_filename none
cache deny all
cache_mem 0 MB
memory_cache_shared off
access_log none
cache_store_log none
cache_log /dev/null
coredump_dir /
mime_table ${share}/squid/mime.conf
icon_directory ${share}/squid/icons
error_directory ${share}/squid-langpack/en
unlinkd_program /bin/true
pinger_enable off
netdb_filename none
http_access allow all
visible_hostname bench
cache_effective_user nobody
max_filedescriptors 4096
shutdown_lifetime 0 seconds
`

async function unpack(root: string, packages: readonly string[]): Promise<string | undefined> {
  const run = promisify(execFile)
  mkdirSync(root)
  try {
    await run('apt-get', ['download', '-qq', ...packages], { cwd: root })
    for (const name of readdirSync(root))
      if (name.endsWith('.deb')) await run('dpkg-deb', ['-x', name, '.'], { cwd: root })
    return root
  } catch {
    return undefined
  }
}

async function whenReady(port: number, started: ChildProcess): Promise<Proxy | undefined> {
  const isGone = new Promise<'gone'>((resolve) => {
    started.once('exit', () => resolve('gone'))
    started.once('error', () => resolve('gone'))
  })
  const untilMs = performance.now() + readyWithinMs
  while (performance.now() < untilMs && !(await isListening(port)))
    if ((await Promise.race([isGone, sleep(50)])) === 'gone') return undefined
  const stop = async () => {
    started.kill('SIGTERM')
    if ((await Promise.race([isGone, sleep(endsWithinMs)])) !== 'gone') started.kill('SIGKILL')
  }
  if (await isListening(port)) return { port, stop }
  started.kill('SIGKILL')
  return undefined
}

function isListening(port: number): Promise<boolean> {
  const probe = connect({ host, port })
  return new Promise((resolve) => {
    probe.once('connect', () => {
      probe.destroy()
      resolve(true)
    })
    probe.once('error', () => resolve(false))
  })
}
