import { execFile } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { type Glovebox, Place, program } from '../support/glovebox.ts'

const run = promisify(execFile)

const place = new Place()
const other = new Place()
let server: Glovebox

beforeAll(async () => {
  server = await place.start('--limit-thread', '32MiB', '--storage-reserve', '0')
})
afterAll(async () => {
  await other.remove()
  await place.remove()
})

interface Outcome {
  code: number
  stdout: string
  stderr: string
}

async function glovebox(...words: string[]): Promise<Outcome> {
  const env = { PATH: process.env.PATH ?? '' }
  return run(program, words, { env }).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    (error: Outcome) => error,
  )
}

const homeOf = ({ directory }: Place): string[] => [
  ...['--home', join(directory, 'home'), '--state-dir', join(directory, 'state')],
]
const backUp = (path: string, ...more: string[]) => glovebox('backup', path, ...homeOf(place), ...more)

/** Appends lines that are numbered, and syncs none of them. */
const writer = 'for n in $(seq 1 200); do echo $n >> numbers; sleep 0.01; done'

describe('a backup of a server that is running', () => {
  it('contains every run that had succeeded, with its files, and can be started elsewhere', async () => {
    await execute(server.url, 'bash', 'echo kept > file', { thread_id: 'idle' })
    const archive = join(place.directory, 'backup.tar')
    const busy = execute(server.url, 'bash', writer, { thread_id: 'busy' })
    await execute(server.url, 'bash', 'echo recent > file', { thread_id: 'recent' })
    const made = await backUp(archive, '--with-master-key')
    expect([made.code, made.stderr]).toEqual([0, expect.stringContaining('copied storage/threads/org_dev/recent.ext4')])
    expect(made.stdout).toMatch(/^Backed up the database, 3 threads and 0 volumes/)
    // Writes of programs that were frozen meanwhile continue.
    expect((await busy).exit_code).toBe(0)
    const { stdout } = await execute(server.url, 'bash', 'wc -l < numbers', { thread_id: 'busy' })
    expect(Number(stdout)).toBe(200)

    expect(await glovebox('backup', 'verify', archive)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/backup\.tar is whole: the database, 3 threads/),
    })
    const uid = ['--front-uid', `${other.frontUid}`, '--front-gid', `${other.frontUid}`]
    const restored = await glovebox('restore', archive, ...homeOf(other), ...uid)
    expect([restored.code, restored.stdout]).toEqual([0, expect.stringContaining('The master key was restored')])
    await server.stop()
    const second = await other.start('--limit-thread', '32MiB', '--storage-reserve', '0')
    for (const [thread, word] of [
      ['idle', 'kept'],
      ['recent', 'recent'],
    ] as const) {
      expect((await execute(second.url, 'bash', 'cat file', { thread_id: thread })).stdout).toBe(`${word}\n`)
    }
    const numbers = (await execute(second.url, 'bash', 'cat numbers', { thread_id: 'busy' })).stdout.split('\n')
    expect(numbers.slice(0, -1)).toEqual(numbers.slice(0, -1).map((_: string, at: number) => `${at + 1}`))
    expect(place.runs().length - other.runs().length).toBeLessThanOrEqual(1)
    await second.stop()
  })
})

describe('a backup as a directory', () => {
  const directory = join(place.directory, 'backup')

  it('is made of a server that is stopped', async () => {
    const { code, stdout } = await backUp(directory, '--json')
    const { files, hasMasterKey } = JSON.parse(stdout)
    expect([code, hasMasterKey]).toEqual([0, false])
    expect(files.map(({ path }: { path: string }) => path)).toContain('storage/threads/org_dev/idle.ext4')
    expect(readdirSync(directory)).not.toContain('master.key')
    expect(readdirSync(place.directory).filter((name) => name.startsWith('.backup-'))).toEqual([])
  })

  it('does not replace another one', async () => {
    expect(await backUp(directory)).toMatchObject({ code: 78, stderr: expect.stringContaining('exists already') })
  })

  it('is not restored over a home directory that is in use', async () => {
    const refused = await glovebox('restore', directory, ...homeOf(place))
    expect(refused).toMatchObject({ code: 78, stderr: expect.stringContaining('is not empty') })
  })

  it('is reported as damaged when a file was changed or is missing', async () => {
    const image = join(directory, 'storage/threads/org_dev/idle.ext4')
    const whole = readFileSync(image)
    writeFileSync(image, Buffer.concat([whole.subarray(0, 5_000_000), Buffer.from('x'), whole.subarray(5_000_001)]))
    const changed = await glovebox('backup', 'verify', directory, '--json')
    expect([changed.code, JSON.parse(changed.stdout).problems]).toEqual([
      74,
      ['storage/threads/org_dev/idle.ext4 was changed'],
    ])
    const refused = await glovebox('restore', directory, '--home', join(place.directory, 'elsewhere'))
    expect(refused).toMatchObject({ code: 78, stderr: expect.stringContaining('The backup is damaged') })
  })

  it('is not mistaken for one when its manifest is missing or hostile', async () => {
    const manifest = join(directory, 'manifest.json')
    const written = JSON.parse(readFileSync(manifest, 'utf8'))
    written.files[0].path = 'storage/../../escape'
    writeFileSync(manifest, JSON.stringify(written))
    const hostile = await glovebox('backup', 'verify', directory)
    expect(hostile).toMatchObject({ code: 78, stderr: expect.stringContaining('is not the manifest of a backup') })
    const missing = await glovebox('backup', 'verify', place.directory)
    expect(missing).toMatchObject({ code: 78, stderr: expect.stringContaining('cannot be read') })
  })
})
