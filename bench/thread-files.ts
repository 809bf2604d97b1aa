import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { RunnerClient } from '../src/runner/client/client.ts'
import { quantile } from './figures.ts'
import type { StorageFigure } from './storage.ts'

const where = { area: 'threads', org: 'bench', name: 'large' } as const
const mib = 1024 * 1024
const chunkBytes = 256 * 1024

/**
 * Transfers one large file through the run protocol, as the front does, and with dd in the same filesystem; both end with fsync.
 * Must be called in a private mount namespace.
 */
export async function measureThreadFiles(bytes: number): Promise<StorageFigure[]> {
  const directory = await mkdtemp(join(tmpdir(), 'glovebox-files-'))
  const program = join(import.meta.dirname, 'thread-files-server.ts')
  const server = spawn(process.execPath, [program, directory, String(2 * bytes + 256 * mib)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const said = createInterface({ input: server.stdout })[Symbol.asyncIterator]()
  const client = new RunnerClient(join(directory, 'link', 'runner.sock'), (problem) => console.error(problem))
  try {
    const mounted = String((await said.next()).value)
    while (!client.readiness.ready) await sleep(5)
    const root = `/proc/${server.pid}/root${mounted}`
    const rounds = [await transfer(client, root, bytes), await transfer(client, root, bytes)]
    server.stdin.end()
    const peakKib = Number((await said.next()).value)
    const rate = (name: keyof Transfer) => rounds.map((round) => bytes / 1e3 / round[name])
    return [
      figure('write a large file, run protocol', rate('writeMs'), 'MB/s'),
      figure('read it, run protocol', rate('readMs'), 'MB/s'),
      figure(
        'write, run protocol, rate against dd',
        rounds.map((round) => round.ddWriteMs / round.writeMs),
        'ratio',
      ),
      figure(
        'read, run protocol, rate against dd',
        rounds.map((round) => round.ddReadMs / round.readMs),
        'ratio',
      ),
      figure('most memory of the serving process', [peakKib], 'KiB'),
    ]
  } finally {
    client.close()
    server.stdin.end()
    if (server.exitCode === null) await once(server, 'exit')
    await rm(directory, { recursive: true, force: true })
  }
}

interface Transfer {
  writeMs: number
  readMs: number
  ddWriteMs: number
  ddReadMs: number
}

async function transfer(client: RunnerClient, root: string, bytes: number): Promise<Transfer> {
  const writeMs = await timed(() => client.files.write(where, 'ours', zeros(bytes)))
  const readMs = await timed(async () => {
    const file = await client.files.read(where, 'ours')
    for await (const _ of file.bytes);
  })
  const theirs = join(root, 'theirs')
  const ddWriteMs = await timed(() => dd('if=/dev/zero', `of=${theirs}`, `count=${bytes / chunkBytes}`, 'conv=fsync'))
  const ddReadMs = await timed(() => dd(`if=${theirs}`, 'of=/dev/null'))
  await rm(theirs)
  return { writeMs, readMs, ddWriteMs, ddReadMs }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now()
  await work()
  return performance.now() - startMs
}

const dd = (...words: string[]) => promisify(execFile)('dd', ['bs=256k', 'status=none', ...words])

function* zeros(bytes: number): Generator<Uint8Array> {
  const chunk = new Uint8Array(chunkBytes)
  for (let at = 0; at < bytes; at += chunkBytes) yield chunk
}

const figure = (what: string, values: readonly number[], unit: StorageFigure['unit']): StorageFigure => ({
  what,
  p50: quantile(values, 0.5),
  p95: quantile(values, 0.95),
  unit,
  count: values.length,
})
