import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { until } from '../support/glovebox.ts'
import { allProcesses, slotsOf, tracesOf } from '../support/machine.ts'
import { openStory } from '../support/story.ts'

// Short lifetimes of slots, so that creating and destroying them is included; none ends during a comparison.
const story = openStory(['--slot-max-runs', '60'], { expectNoWarnings: true })

const kinds = [
  ['bash', 'echo $N', 0],
  ['python', 'import os; print(os.environ["N"])', 0],
  ['bash', 'echo $N; (setsid sleep 100 &); exit 3', 3],
  ['bash', 'echo $N; head -c 100000 /dev/zero > ~/file; head -c 100000 /dev/zero > /tmp/file', 0],
  ['node', 'console.log(process.env.N)', 0],
  ['bash', 'echo $N; kill -SEGV $$', 139],
] as const

async function run(from: number, count: number): Promise<void> {
  for (let index = from; index < from + count; index++) {
    // Mostly the cheapest: a node run costs as much as four bash runs.
    const [language, code, exitCode] = kinds[index % 20 < kinds.length ? index % 20 : 0]!
    const answer = await execute(story.url, language, code, { env_vars: { N: `${index}` } })
    expect(answer).toMatchObject({ stdout: `${index}\n`, exit_code: exitCode })
  }
}

interface Use {
  descriptors: number
  residentMiB: number
  children: number
}

function useOf(pid: number): Use {
  const resident = /^VmRSS:\s*(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return {
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    residentMiB: Number(resident) / 1024,
    children: allProcesses().filter(({ parent }) => parent === pid).length,
  }
}

const uses = () => ({ runner: useOf(story.server.runnerPid), front: useOf(story.server.frontPid) })

/** The traces of the server, without what differs between slots. */
function shape() {
  const nameless = (lines: string[]) => [...new Set(lines.map((line) => line.replaceAll(/slt_[\w-]+/g, 'slt_')))].sort()
  const { mounts, cgroups, containers, files, temporaryFiles, loopDevices, sockets, idLeases } = tracesOf(story.place)
  return {
    mounts,
    temporaryFiles,
    loopDevices,
    sockets,
    counts: { cgroups: cgroups.length, containers: containers.length, idLeases: idLeases.length, files: files.length },
    kinds: nameless([...cgroups, ...containers, ...files]),
  }
}

/** Two slots: one bound and one ready. */
const atRest = () =>
  until(() => slotsOf(story.place).length === 2 && tracesOf(story.place).idLeases.length === 2, 'two slots and no more')

describe('a thousand runs in sequence', () => {
  it('leave no zombie, no file descriptor, no memory and no file behind', async () => {
    await run(0, 200)
    await atRest()
    const before = { uses: uses(), shape: shape() }
    await run(200, 800)
    await atRest()
    const after = { uses: uses(), shape: shape() }

    expect(after.shape).toEqual(before.shape)
    for (const name of ['runner', 'front'] as const) {
      const [was, is] = [before.uses[name], after.uses[name]]
      expect(is.children).toBeLessThanOrEqual(was.children)
      expect(is.descriptors - was.descriptors).toBeLessThanOrEqual(4)
      // A heap fluctuates; a leak of one kilobyte per run, or of the data that each run carries, would exceed this.
      expect(is.residentMiB - was.residentMiB).toBeLessThan(32)
    }
    const own = new Set([story.server.supervisorPid, story.server.runnerPid, story.server.frontPid])
    expect(allProcesses().filter(({ state, parent }) => state === 'Z' && own.has(parent))).toEqual([])
    const rows = story.place.runs()
    expect(rows).toHaveLength(1000)
    expect(rows.filter(({ finished_at }) => finished_at === null)).toEqual([])
  }, 300_000)
})
