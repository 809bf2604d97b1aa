import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openKernels } from '../../../src/core/sandboxes/kernels/kernels.ts'
import { callIn } from '../../support/kernel-calls.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { execute, type SandboxRunner, sandboxRunner, sandboxSpec } from '../../support/sandbox-runner.ts'

const mib = 1024 * 1024

/** Each line changes the files in another way; `seen` is what the next script prints of them. */
const setUp = `
mkdir -p tree/inner && echo one > tree/inner/kept && echo old > changed && chmod 640 changed && echo gone > removed
ln -s changed link && mkfifo pipe && echo a > becomes-directory && mkdir becomes-file && echo b > becomes-file/b
touch -d 2001-02-03 dated && mkdir -m 700 closed && echo x > closed/x && echo config > /etc/own.conf
`
const change = `
echo two >> tree/inner/kept && echo new > changed && chmod 600 changed && rm removed && echo extra > extra
rm link pipe && ln -s /etc/passwd link && rm becomes-directory && mkdir becomes-directory && echo c > becomes-directory/c
rm -r becomes-file && echo d > becomes-file && touch dated && chmod 755 closed && rm closed/x && mkdir -p new/deep && echo e > new/deep/e
rm /etc/own.conf && echo changed >> /etc/passwd && rm -r /usr/share/perl5 && mv tree moved && chown baponi changed
echo 1 > /usr/bin/added && rm /usr/bin/env && mkdir /usr/share/perl5 && echo f > /usr/share/perl5/f
`
const look = `
find . /etc/own.conf /usr/bin/added /usr/bin/env -printf '%p %y %m %u %s %l\\n' 2>&1 | sort
find . -type f -exec cat {} + | sort; stat -c %y dated; md5sum /etc/passwd /usr/bin/env; find /usr/share/perl5 | sort | md5sum
`

inPrivateMounts(import.meta.filename, () => {
  describe('files of a sandbox that are rewound', () => {
    let runner: SandboxRunner
    const open = async (more: Parameters<typeof sandboxSpec>[0] = {}, rewind = 4) => {
      const spec = sandboxSpec({ user: 'root', disk: { bytes: 64 * mib, inodes: 4_096 }, ...more })
      await runner.client.sandboxes.start(spec)
      const kernels = openKernels(runner.client.sandboxes.processes, { states: runner.client.sandboxes.states })
      const { id: context } = await kernels.create(spec.sandboxId, { language: 'python', rewind, files: true })
      const call = callIn(kernels, spec.sandboxId)
      const python = (code: string) => call('python', code, { context })
      const shell = async (script: string) =>
        (await python(`import subprocess\nprint(subprocess.run(${JSON.stringify(['bash', '-c', script])}).returncode)`))
          .stdout
      const rewind_ = (calls: number, files = true) => kernels.rewind(spec.sandboxId, { context, calls, files })
      return { spec, kernels, context, python, shell, rewind: rewind_ }
    }
    const states = () => readdirSync(join(runner.storageDir, 'states', 'org_a'))

    beforeAll(async () => {
      runner = await sandboxRunner()
    }, 60_000)
    afterAll(async () => {
      expect(await runner.close()).toEqual([])
    })

    it('are put back as they were: content, kind, mode, owner, links, also those of the image', async () => {
      const { spec, shell, python, rewind } = await open({ disk: { bytes: 256 * mib, inodes: 40_000 } })
      const seen = async () => (await execute(runner.client, spec.sandboxId, ['bash', '-c', look])).stdout
      await shell(setUp)
      const before = await seen()
      expect(before).toContain('./changed f 640 root 4')
      expect(await shell(change)).toBe('0\n')
      expect(await seen()).not.toBe(before)
      await python('x = 1')
      const { calls, notRewound, files } = await rewind(2)
      expect({ calls, notRewound }).toEqual({ calls: 2, notRewound: [] })
      expect(files!.restored).toBeGreaterThan(10)
      expect(files!.removed).toBeGreaterThan(3)
      expect(await seen()).toBe(before)
      expect((await python('"x" in globals()')).result).toBe('False')
    })

    it('follow the calls: also after rewinds of variables only, calls that were killed, and a new start', async () => {
      const { kernels, spec, context, shell, python, rewind } = await open()
      const seen = async () => (await execute(runner.client, spec.sandboxId, ['cat', 'n'])).stdout
      for (const n of [1, 2, 3]) await shell(`echo ${n} > n`)
      await rewind(1, false)
      expect(await seen()).toBe('3\n')
      await shell('echo 4 > n')
      await rewind(2)
      expect(await seen()).toBe('1\n')
      const killed = await python('open("n", "w").write("5"); import os; os.kill(os.getpid(), 9)')
      expect([killed.ended.state, await seen()]).toEqual(['restored', '5'])
      await shell('echo 6 > n')
      await rewind(1)
      expect(await seen()).toBe('1\n')
      await kernels.restart(spec.sandboxId, context)
      await shell('echo 7 > n')
      await expect(rewind(2)).rejects.toMatchObject({ code: 'rewind_unavailable' })
      await rewind(1)
      expect(await seen()).toBe('1\n')
    })

    it('are not changed, nor variables, by a rewind that is refused', async () => {
      const { kernels, spec, shell, python, rewind } = await open({}, 2)
      const refused = { code: 'rewind_unavailable' }
      await python('x = 1')
      for (const n of [1, 2, 3]) await shell(`echo ${n} > n`)
      await expect(rewind(3)).rejects.toMatchObject(refused)
      expect((await python('x, open("n").read()')).result).toBe("(1, '3\\n')")
      const { id } = await kernels.create(spec.sandboxId, { language: 'python', rewind: 2 })
      await callIn(kernels, spec.sandboxId)('python', '1', { context: id })
      await expect(kernels.rewind(spec.sandboxId, { context: id, calls: 1, files: true })).rejects.toThrow(
        /rewind_files/,
      )
    })

    it('are put back on a disk that was filled', async () => {
      const { spec, shell, rewind } = await open({ disk: { bytes: 16 * mib, inodes: 1_024 } })
      await shell('head -c 8M /dev/urandom > big; md5sum big > sum')
      await shell('rm big; head -c 12M /dev/urandom > big; cat /dev/zero > rest')
      expect((await rewind(1)).notRewound).toEqual([])
      expect((await execute(runner.client, spec.sandboxId, ['md5sum', '-c', 'sum'])).stdout).toBe('big: OK\n')
    })

    it('take no more of the disk of the machine than two disks of the sandbox, and nothing afterwards', async () => {
      const { spec, shell, rewind } = await open({ disk: { bytes: 16 * mib, inodes: 1_024 } })
      for (const n of [1, 2, 3, 4, 5]) await shell(`head -c 8M /dev/urandom > data; echo ${n} > n`)
      await expect(rewind(4)).rejects.toThrow(/were not kept/)
      await rewind(1)
      expect((await execute(runner.client, spec.sandboxId, ['cat', 'n'])).stdout).toBe('4\n')
      await runner.client.sandboxes.stop(spec.sandboxId, 0)
      expect(states().filter((name) => name.startsWith(spec.sandboxId))).toEqual([])
    })

    it('cannot be reached below the sandbox by its root', async () => {
      const { spec } = await open()
      const script = 'ls /run; ls /proc/1/fd/61/; umount /run; unshare -m true; cd /dock'
      const { stdout, stderr } = await execute(runner.client, spec.sandboxId, ['bash', '-c', script])
      expect(stdout).toBe('')
      expect(stderr.match(/denied|not permitted|must be superuser|No such/g)).toHaveLength(4)
    })
  })
})
