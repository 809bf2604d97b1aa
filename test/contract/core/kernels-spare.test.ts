import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { SandboxSpec } from '../../../src/base/sandbox.ts'
import { openKernels } from '../../../src/core/sandboxes/kernels/kernels.ts'
import { callIn } from '../../support/kernel-calls.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { execute, type SandboxRunner, sandboxRunner, sandboxSpec } from '../../support/sandbox-runner.ts'

/** Prints what a process is, as JSON. */
const describeSelf = `
import gc, json, os, re, signal, site, sys
def read(path):
    with open(path) as file:
        return file.read()
status = dict(line.split(":\\t", 1) for line in read("/proc/self/status").splitlines())
names = ["Umask", "PPid", "TracerPid", "Uid", "Gid", "Groups", "SigQ", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff",
         "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "CoreDumping", "Threads", "NSsid", "NSpgid", "Name"]
pid = os.getpid()
print(json.dumps({
    "status": {name: re.sub(r"\\b%d\\b" % pid, "self", status[name].strip()) for name in names if name in status},
    "ppid": os.getppid(),
    "isLeader": [os.getsid(0) == pid, os.getpgrp() == pid],
    "namespaces": {name: os.readlink("/proc/self/ns/" + name) for name in os.listdir("/proc/self/ns")},
    "cgroup": read("/proc/self/cgroup"),
    "exe": os.path.realpath("/proc/self/exe"),
    "maps": sorted({path for line in read("/proc/self/maps").splitlines() for path in line.split()[5:6]
                    if path.startswith("/") and not os.path.exists(path)}),
    "root": [os.readlink("/proc/self/root"), os.getcwd()],
    "mounts": read("/proc/self/mountinfo"),
    "limits": read("/proc/self/limits"),
    "oom": read("/proc/self/oom_score_adj"),
    "owner": [os.stat("/proc/self").st_uid, os.stat("/proc/self/fd").st_uid],
    "files": {n: os.readlink("/proc/self/fd/" + n).split(":")[0] for n in os.listdir("/proc/self/fd") if n != str(os.O_RDONLY + 3)},
    "cmdline": read("/proc/self/cmdline").replace("other", "python"),
    "shownEnviron": read("/proc/self/environ"),
    "environ": dict(os.environ),
    "bytes": {os.fsdecode(k): os.fsdecode(v) for k, v in os.environb.items()},
    "posix": {os.fsdecode(k): os.fsdecode(v) for k, v in __import__("posix").environ.items()},
    "argv": sys.argv, "orig": sys.orig_argv[:3], "path": sys.path, "flags": repr(sys.flags), "executable": sys.executable,
    "prefix": [sys.prefix, sys.base_prefix, sys.exec_prefix],
    "modules": sorted(name for name in sys.modules),
    "builtins": sorted(dir(__builtins__)),
    "signals": {str(n): repr(signal.getsignal(n)).split(" at ")[0] for n in signal.valid_signals()},
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "user": [site.USER_BASE, site.USER_SITE, site.ENABLE_USER_SITE],
    "encodings": [sys.stdin.encoding, sys.stdout.encoding, sys.stderr.encoding, sys.getfilesystemencoding()],
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
    "importers": sorted(path for path in sys.path_importer_cache if "glovebox" not in path),
    "hooks": [repr(sys.meta_path).count("Finder"), sys.dont_write_bytecode],
}))
`

const isFork = 'print("python-zygote" in open("/proc/self/maps").read())'

inPrivateMounts(import.meta.filename, () => {
  describe('the first Python kernel of a sandbox', () => {
    let runner: SandboxRunner
    let kernels: ReturnType<typeof openKernels>

    beforeAll(async () => {
      runner = await sandboxRunner({ slotsReady: 2, sandboxesMax: 12, slotsMax: 16 })
      kernels = openKernels(runner.client.sandboxes.processes)
      // Interpreters are prepared on machines that have had a sandbox.
      await remove(await started())
    }, 60_000)
    afterAll(async () => {
      expect(await runner.close()).toEqual([])
    })

    async function started(more: Partial<SandboxSpec> = {}): Promise<SandboxSpec> {
      const spec = sandboxSpec(more)
      await runner.client.sandboxes.start(spec)
      return spec
    }

    const remove = ({ orgId, sandboxId }: SandboxSpec) => runner.client.sandboxes.remove(orgId, sandboxId)

    /** Starts a sandbox in a slot with a waiting interpreter. */
    async function startedWithSpare(more: Partial<SandboxSpec> = {}): Promise<SandboxSpec> {
      const deadline = Date.now() + 60_000
      for (;;) {
        while (runner.pythons().length === 0) {
          if (Date.now() > deadline) throw new Error('no interpreter was prepared')
          await sleep(20)
        }
        const spec = await started(more)
        if (runner.pythonsOfSandboxes().length > 0) return spec
        // The kernel shows it under the limits a moment before the runner has learned that it is.
        await remove(spec)
      }
    }

    const python = ({ sandboxId }: SandboxSpec, code: string, options = {}) =>
      callIn(kernels, sandboxId)('python', code, options)

    it.each(['baponi', 'root'])(
      'is a fork of a waiting interpreter, and for %s as one that was started in everything a program sees',
      async (user) => {
        const env = { GREETING: 'hällo', TZ: 'Europe/Berlin', EMPTY: '' }
        const spec = await startedWithSpare({ env, user })
        expect((await python(spec, isFork)).stdout).toBe('True\n')
        const { id: context } = await kernels.create(spec.sandboxId, { language: 'python' })
        expect((await python(spec, isFork, { context })).stdout).toBe('False\n')
        const [forked, begun] = await Promise.all([python(spec, describeSelf), python(spec, describeSelf, { context })])
        expect([forked.stderr, begun.stderr]).toEqual(['', ''])
        const shown = (text: string) => JSON.parse(text.replaceAll(context, 'python')) as Record<string, unknown>
        const [one, two] = [shown(forked.stdout), shown(begun.stdout)]
        for (const name of Object.keys(two)) expect.soft({ [name]: one[name] }).toEqual({ [name]: two[name] })
        expect(one).toMatchObject({ ppid: 1, environ: env })
        await remove(spec)
      },
    )

    it('has a hash seed and addresses that no other sandbox has', async () => {
      const seen = new Set<string>()
      for (const _ of [1, 2]) {
        const spec = await startedWithSpare()
        const { stdout } = await python(spec, `${isFork}; print(hash("glovebox"), id(print))`)
        expect(stdout).toMatch(/^True\n/)
        seen.add(stdout)
        await remove(spec)
      }
      expect(seen.size).toBe(2)
    })

    it('ends, is interrupted and is restarted as one that was started', async () => {
      const spec = await startedWithSpare()
      expect((await python(spec, `${isFork}; import time, subprocess; x = 1`)).stdout).toBe('True\n')
      const stopped = await python(spec, 'subprocess.run(["sleep", "60"])', { timeoutMs: 300 })
      expect(stopped.ended).toMatchObject({ ending: { kind: 'timed_out' }, state: 'kept' })
      expect((await python(spec, 'x')).result).toBe('1')
      const killed = await python(spec, 'import os; os.kill(os.getpid(), 9)')
      expect(killed.ended.state).toBe('lost')
      expect((await python(spec, isFork)).stdout).toBe('False\n')
      await remove(spec)
    })

    it('can be rewound', async () => {
      const spec = await startedWithSpare()
      const { id: context } = await kernels.create(spec.sandboxId, { language: 'python', rewind: 2 })
      expect((await python(spec, `${isFork}; x = 1`, { context })).stdout).toBe('True\n')
      await python(spec, 'x = 2', { context })
      await kernels.rewind(spec.sandboxId, { context, calls: 1 })
      expect((await python(spec, 'x', { context })).result).toBe('1')
      await remove(spec)
    })

    it('is forked after a pause of its sandbox', async () => {
      const spec = await startedWithSpare()
      await runner.client.sandboxes.pause(spec.sandboxId)
      await runner.client.sandboxes.resume(spec.sandboxId)
      expect((await python(spec, isFork)).stdout).toBe('True\n')
      await remove(spec)
    })

    it.each<[string, Partial<SandboxSpec>, string, string, string]>([
      ['a variable is read when it starts', { env: { PYTHONHASHSEED: '7' } }, '', 'sys.flags.hash_randomization', '1'],
      [
        'a limit of its memory allocator',
        { env: { MALLOC_ARENA_MAX: '1' } },
        '',
        'os.environ["MALLOC_ARENA_MAX"]',
        "'1'",
      ],
      [
        'another python comes first',
        { env: { PATH: '/home/baponi/bin:/usr/bin:/bin' } },
        'mkdir -p /home/baponi/bin; ln -s /usr/bin/python3 /home/baponi/bin/python3',
        'sys.executable',
        "'/home/baponi/bin/python3'",
      ],
      [
        'its user has packages',
        {},
        'python3 -c "import site, os; os.makedirs(site.getusersitepackages())"',
        'any(".local" in path for path in sys.path)',
        'True',
      ],
      [
        'files of the image were changed',
        { user: 'root' },
        'echo "import builtins; builtins.changed = 1" >> $(python3 -c "import sitecustomize; print(sitecustomize.__file__)")',
        'changed',
        '1',
      ],
      ['a program of the image was added', { user: 'root' }, 'touch /usr/local/bin/tool', '1', '1'],
    ])('is started where %s', async (_, more, command, code, expected) => {
      const spec = await startedWithSpare(more)
      if (command) await execute(runner.client, spec.sandboxId, ['sh', '-c', command])
      const { stdout, result } = await python(spec, `import os, sys\n${isFork}\n${code}`)
      expect([stdout, result]).toEqual(['False\n', expected])
      await remove(spec)
    })

    it('leaves no interpreter in a sandbox that has ended without one', async () => {
      const spec = await startedWithSpare()
      const [waiting] = runner.pythonsOfSandboxes()
      expect(
        (await execute(runner.client, spec.sandboxId, ['sh', '-c', 'ps -e -o args= || true'])).stdout,
      ).not.toContain('kernels/python')
      const [figures] = await runner.client.sandboxes.figures([spec.sandboxId])
      expect(figures?.processes).toBe(0)
      await remove(spec)
      expect(runner.pythons()).not.toContain(waiting)
    })
  })
})
