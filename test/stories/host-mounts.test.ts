import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { program } from '../support/glovebox.ts'
import { slotsOf } from '../support/machine.ts'
import { disposablePlaces } from '../support/story.ts'

describe('a mount of the machine', () => {
  const directory = mkdtempSync(join(tmpdir(), 'glovebox-mounts-'))
  const disk = join(directory, 'disk')
  /** Starts the server in a mount namespace in which every mount is shared, as on most machines. */
  const starter = join(directory, 'start')
  const inside = `mount -t tmpfs disk ${disk} && exec ${program} "$@"`
  const newPlace = disposablePlaces(starter)
  afterAll(() => rmSync(directory, { recursive: true }))

  it('does not stay busy when it is unmounted, and does not appear in slots when it is mounted', async () => {
    mkdirSync(disk)
    const script = `#!/bin/sh\nexec unshare --mount --propagation shared sh -c '${inside}' sh "$@"\n`
    writeFileSync(starter, script, { mode: 0o755 })
    const place = newPlace()
    const server = await place.start()
    expect(await execute(server.url, 'bash', 'exit 3')).toMatchObject({ exit_code: 3 })
    const { supervisorPid, runnerPid, frontPid } = server
    const onMachine = (...words: string[]) =>
      execFileSync('nsenter', ['--mount', '--target', `${supervisorPid}`, ...words])
    const whoHas = (path: string) =>
      [supervisorPid, runnerPid, frontPid, ...slotsOf(place).flatMap(({ guestPid }) => guestPid ?? [])].filter((pid) =>
        readFileSync(`/proc/${pid}/mountinfo`, 'utf8').includes(` ${path} `),
      )

    expect(whoHas(disk)).toEqual([supervisorPid, runnerPid, frontPid])
    onMachine('umount', disk)
    expect(whoHas(disk)).toEqual([])

    const covered = '/usr/lib/python3'
    onMachine('mount', '-t', 'tmpfs', 'secret', covered)
    expect(whoHas(covered)).toContain(supervisorPid)
    const { stdout } = await execute(server.url, 'bash', `grep -c secret /proc/self/mountinfo; ls ${covered}`)
    expect(stdout).toBe('0\ndist-packages\n')
    onMachine('umount', covered)
    expect(whoHas(covered)).toEqual([])
  })
})
