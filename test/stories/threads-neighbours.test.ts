import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { callTool, execute, type Following, follow, post } from '../support/calls.ts'
import { openStory } from '../support/story.ts'

const story = openStory([
  ...['--storage-reserve', '0', '--limit-thread', '32MiB', '--limit-thread-files', '2000'],
  // Sixty Python processes with their own pages fit, so that the fork bomb reaches the process limit.
  ...['--limit-memory', '256MiB', '--limit-pids', '64', '--output-hard', '1GiB', '--runs-max', '4'],
])
const quotaBytes = 32 * 1024 ** 2

/** Each runs forever, and prints a line as soon as what it fills is full, or its limit was reached once. */
const attacks: Readonly<Record<string, [code: string, language?: string]>> = {
  'a fork bomb': [
    `
import os
said = False
while True:
    try: os.fork()
    except OSError:
        if not said: os.write(1, b'met\\n')
        said = True
`,
  ],
  'a memory bomb': [
    `
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
while True:
    child = os.fork()
    if child == 0:
        open('/proc/self/oom_score_adj', 'w').write('1000')
        hold = []
        while True: hold.append(bytearray(8 << 20))
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9: os.write(1, b'met\\n')
`,
  ],
  'what fills the disk': [
    `
import os
f = os.open('big', os.O_CREAT | os.O_WRONLY)
while True:
    try: os.write(f, bytes(1 << 20))
    except OSError: os.write(1, b'met\\n'); os.ftruncate(f, 0); os.lseek(f, 0, 0)
`,
  ],
  'what fills the disk with names': [
    `
import os
n = 0
while True:
    try: os.close(os.open(f'n{n}', os.O_CREAT)); n += 1
    except OSError:
        os.write(1, b'met\\n')
        while n: n -= 1; os.unlink(f'n{n}')
`,
  ],
  'a flood of output': ['echo met; while :; do printf "%65536s" flood; sleep 0.01; done', 'bash'],
  'a forest of FIFOs': [
    `
import os, time
for n in range(1500): os.mkfifo(f'fifo{n}')
for n in range(400): os.symlink(f'fifo{n}', f'link{n}')
os.write(1, b'met\\n')
while True: time.sleep(0.01); os.rename('fifo0', 'fifo'); os.rename('fifo', 'fifo0')
`,
  ],
}

const cancel = ({ runId }: Following) => post(`${story.url}/v1/executions/${runId}/cancel`, {})

async function download(id: string, path: string): Promise<string> {
  const args = { source: 'thread', id, path }
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'files_download', arguments: args } }
  return JSON.stringify((await post(`${story.url}/mcp`, message)).body)
}

/** Makes each kind of call ten times, as other clients do, and expects correct results. */
async function serveOthers(thread: string): Promise<void> {
  for (let n = 0; n < 10; n++) {
    const kept = await execute(story.url, 'bash', `echo ${n} >>log; tail -n 1 log`, { thread_id: thread })
    expect(kept).toMatchObject({ stdout: `${n}\n`, exit_code: 0 })
    const answers = await Promise.all([
      callTool(story.url, { code: `print(${n})` }).then(({ body }) => body.result?.structuredContent.stdout),
      download(thread, 'log').then((text) => text.includes(`${n}\\n`)),
      fetch(`${story.url}/healthz`).then(({ status }) => status),
      fetch(`${story.url}/readyz`).then(({ status }) => status),
    ])
    expect(answers).toEqual([`${n}\n`, true, 200, 200])
  }
}

describe('other clients are served normally while a run in its thread is', () => {
  it.each(Object.entries(attacks))('%s', async (what, [code, language = 'python']) => {
    const thread_id = what.replaceAll(' ', '-')
    const run = await follow(story.url, language, code, { timeout: 60, thread_id })
    let ended = false
    void run.result.finally(() => (ended = true)).catch(() => undefined)
    try {
      await run.said('met')
      await serveOthers(`beside-${thread_id}`)
      const looks = await Promise.all(Array.from({ length: 20 }, (_, n) => download(thread_id, `fifo${n}`)))
      for (const look of looks) expect(look).toMatch(/fifo\d+ does not exist|not a regular file but a fifo/)
      expect(ended).toBe(false) // It kept running all the while.
    } finally {
      await cancel(run)
    }
    expect(await run.result).toMatchObject({ ending: { kind: 'cancelled' } })
    expect(await execute(story.url, 'bash', 'ls >/dev/null; echo free', { thread_id })).toMatchObject({
      stdout: 'free\n',
    })
  })

  it('all of them at once', async () => {
    const three = ['a fork bomb', 'what fills the disk', 'a flood of output'] as const
    const runs = await Promise.all(
      three.map((what) => {
        const [code, language = 'python'] = attacks[what] ?? ['']
        return follow(story.url, language, code, { timeout: 60, thread_id: `all-${what.replaceAll(' ', '-')}` })
      }),
    )
    await Promise.all(runs.map((run) => run.said('met')))
    await serveOthers('beside-all')
    for (const run of runs) await cancel(run)
    for (const { result } of runs) expect(await result).toMatchObject({ ending: { kind: 'cancelled' } })
  })

  it('and none uses more disk than its quota, or disturbs the server', () => {
    const images = join(story.place.directory, 'home/storage/threads/org_dev')
    const taken = readdirSync(images).map((file) => statSync(join(images, file)).blocks * 512)
    expect(taken.length).toBeGreaterThan(12)
    // ext4 needs some for itself: the journal and the inodes.
    expect(Math.max(...taken)).toBeLessThan(quotaBytes + 8 * 1024 ** 2)
    expect(story.server.warnings).toEqual([])
  })
})
