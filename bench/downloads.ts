import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream, mkdirSync } from 'node:fs'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { Agent } from 'node:http'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { median, shown, table } from './figures.ts'
import { GloveboxServer } from './glovebox-server.ts'
import { download, linkTo, pattern, upload } from './signed-link.ts'

export interface DownloadFigure {
  what: string
  unit: 'files/s' | 'MB/s'
  ours: number
  /** Absent when nginx is not available. */
  nginx: number | undefined
}

export interface DownloadPlan {
  rounds: number
  blockMs: number
  transferBytes: number
}

const smallBytes = 4096
const thread = 'bench-downloads'

/** Measures a small and a large file through signed links, and nginx with the same bytes, in turn. */
export async function measureDownloads(plan: DownloadPlan): Promise<DownloadFigure[]> {
  const directory = await mkdtemp(join(tmpdir(), 'glovebox-downloads-'))
  const quotaMib = Math.ceil((plan.transferBytes * 2) / 2 ** 20) + 256
  const server = await GloveboxServer.start(['--limit-thread', `${quotaMib}MiB`])
  const nginx = await startNginx(directory, plan.transferBytes)
  try {
    const ours = {
      small: await linkAfterUpload(server, 'small', smallBytes),
      large: await linkAfterUpload(server, 'large', plan.transferBytes),
    }
    return [
      await compare(plan, 'a 4 KiB file, 1 connection', ours.small, nginx && `${nginx.url}/small`, 1),
      await compare(plan, 'a 4 KiB file, 32 connections', ours.small, nginx && `${nginx.url}/small`, 32),
      await compareLarge(plan, ours.large, nginx && `${nginx.url}/large`),
    ]
  } finally {
    nginx?.process.kill('SIGTERM')
    await server.stop()
    await rm(directory, { recursive: true, force: true })
  }
}

async function linkAfterUpload(server: GloveboxServer, path: string, bytes: number): Promise<string> {
  await upload(await linkTo(server, 'upload', { id: thread, path, size: bytes }), bytes)
  return linkTo(server, 'download', { id: thread, path, expires_in: 3600 })
}

async function compare(
  { rounds, blockMs }: DownloadPlan,
  what: string,
  ours: string,
  nginx: string | undefined,
  connections: number,
): Promise<DownloadFigure> {
  const [own, other]: [number[], number[]] = [[], []]
  for (let round = 0; round < rounds; round++) {
    own.push(await filesPerSecond(ours, connections, blockMs))
    if (nginx) other.push(await filesPerSecond(nginx, connections, blockMs))
  }
  return { what, unit: 'files/s', ours: median(own), nginx: nginx === undefined ? undefined : median(other) }
}

async function filesPerSecond(url: string, connections: number, blockMs: number): Promise<number> {
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  const untilMs = performance.now() + blockMs
  let files = 0
  const client = async () => {
    while (performance.now() < untilMs) {
      const { bytes } = await download(url, { agent })
      if (bytes !== smallBytes) throw new Error(`${bytes} bytes came of ${smallBytes}`)
      files += 1
    }
  }
  const startedMs = performance.now()
  await Promise.all(Array.from({ length: connections }, client))
  agent.destroy()
  return files / ((performance.now() - startedMs) / 1000)
}

/** Enough repetitions to see the variation. */
const largeRounds = 3

async function compareLarge(
  { transferBytes }: DownloadPlan,
  ours: string,
  nginx: string | undefined,
): Promise<DownloadFigure> {
  const [own, other]: [number[], number[]] = [[], []]
  const rate = async (url: string) => transferBytes / 1e3 / (await download(url)).ms
  for (let round = 0; round < largeRounds; round++) {
    own.push(await rate(ours))
    if (nginx) other.push(await rate(nginx))
  }
  const what = `a file of ${shown(transferBytes / 2 ** 30)} GiB, 1 connection`
  return { what, unit: 'MB/s', ours: median(own), nginx: nginx === undefined ? undefined : median(other) }
}

/** Debian's package, unpacked in the working directory: when installed, it would start serving. @returns nothing when it is not available. */
async function startNginx(
  directory: string,
  largeBytes: number,
): Promise<{ url: string; process: ChildProcess } | undefined> {
  const run = promisify(execFile)
  try {
    await run('apt-get', ['download', '-qq', 'nginx'], { cwd: directory })
    const [archive] = (await readdir(directory)).filter((name) => name.endsWith('.deb'))
    await run('dpkg-deb', ['-x', archive!, 'nginx'], { cwd: directory })
  } catch {
    return undefined
  }
  const files = join(directory, 'files')
  mkdirSync(files)
  await writeFile(join(files, 'small'), Buffer.concat([...pattern(smallBytes)]))
  await pipeline(Readable.from(pattern(largeBytes)), createWriteStream(join(files, 'large')))
  const port = await freePort()
  await writeFile(join(directory, 'nginx.conf'), configurationOf(directory, files, port))
  const nginx = spawn(join(directory, 'nginx/usr/sbin/nginx'), ['-c', join(directory, 'nginx.conf'), '-p', directory], {
    stdio: 'ignore',
  })
  const url = `http://127.0.0.1:${port}`
  for (let attempt = 0; attempt < 100; attempt++) {
    if (
      await fetch(`${url}/small`).then(
        ({ ok }) => ok,
        () => false,
      )
    )
      return { url, process: nginx }
    await sleep(50)
  }
  nginx.kill('SIGTERM')
  return undefined
}

const configurationOf = (directory: string, files: string, port: number): string => `
daemon off;
user root;
worker_processes auto;
pid ${directory}/nginx.pid;
error_log ${directory}/error.log;
events {}
http {
  access_log off;
  sendfile on;
  keepalive_requests 1000000;
  default_type application/octet-stream;
  client_body_temp_path ${directory}/body;
  proxy_temp_path ${directory}/proxy;
  fastcgi_temp_path ${directory}/fastcgi;
  uwsgi_temp_path ${directory}/uwsgi;
  scgi_temp_path ${directory}/scgi;
  server { listen 127.0.0.1:${port}; root ${files}; }
}
`

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return port
}

export function downloadsPart(figures: readonly DownloadFigure[]): string {
  const rows = figures.map(({ what, unit, ours, nginx }) => [
    what,
    nginx === undefined ? '–' : shown(ours / nginx),
    `${shown(ours)} ${unit}`,
    nginx === undefined ? 'could not be had' : `${shown(nginx)} ${unit}`,
  ])
  return [
    '## Downloads',
    '',
    'Through a signed link, against nginx with sendfile on the same bytes; one client on the same machine.',
    '',
    table(['what', '÷ nginx', 'ours', 'nginx'], rows),
  ].join('\n')
}
