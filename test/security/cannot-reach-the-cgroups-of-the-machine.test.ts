/** Promise 52: the mount of cgroup2 of a run or a sandbox cannot be reached below the files that show its limits. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { plain } from '../support/attacks.ts'
import { inPrivateMounts } from '../support/private-mounts.ts'
import { execute, type SandboxRunner, sandboxRunner, sandboxSpec } from '../support/sandbox-runner.ts'
import { Bench, benchMissing, python, runtimesHere } from '../support/slot-bench.ts'

const attackPath = join(import.meta.dirname, 'attacks/uncover-cgroups.py')
const attack = readFileSync(attackPath, 'utf8')
const place = '/sys/fs/cgroup'

/** Each attempt with the answer of the kernel, and whether it led to the hierarchy. */
const attemptsOf = (printed: string): Record<string, [answer: string, isReached: boolean]> =>
  Object.assign(
    {},
    ...printed
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line)),
  )

const refused = (printed: string) => {
  const { 'by its names': byNames, ...calls } = attemptsOf(printed)
  expect(byNames).toEqual(['', false])
  expect(Object.keys(calls)).toHaveLength(8)
  for (const [name, answer] of Object.entries(calls))
    expect([name, ...answer]).toEqual([name, expect.stringMatching(/not permitted|not implemented/), false])
}

inPrivateMounts(import.meta.filename, () => {
  it('is reached by a process that may move the cover', async () => {
    const covered = `d=$(mktemp -d) && mkdir $d/cgroup $d/cover && mount -t cgroup2 none $d/cgroup &&
      mount --bind $d/cover $d/cgroup && exec python3 ${attackPath} $d/cgroup`
    const attempts = attemptsOf((await plain('unshare', '--mount', 'bash', '-c', covered)).stdout)
    expect([attempts['by its names'], attempts['moving the cover']]).toEqual([
      ['', false],
      ['done', true],
    ])
  })

  describe.skipIf(benchMissing !== undefined).each(runtimesHere)('a run in a slot of %s', (runtime) => {
    it('does not reach it', async () => {
      const bench = await Bench.open(runtime)
      try {
        const outcome = await (await bench.slot()).run(python(attack, place))
        expect(outcome.ending).toEqual({ kind: 'exited', code: 0 })
        refused(outcome.stdout)
      } finally {
        await bench.close()
      }
    })
  })

  describe('a named sandbox', () => {
    let runner: SandboxRunner
    beforeAll(async () => {
      runner = await sandboxRunner()
    }, 120_000)
    afterAll(async () => expect(await runner.close()).toEqual([]))

    it.each(['root', 'baponi'])('does not reach it as %s', async (user) => {
      const spec = sandboxSpec({ user })
      await runner.client.sandboxes.start(spec)
      refused((await execute(runner.client, spec.sandboxId, ['python3', '-c', attack, place])).stdout)
      await runner.client.sandboxes.remove(spec.orgId, spec.sandboxId)
    })
  })
})
