import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { findPreloadProblem } from '../../../src/engine/jails/preload.ts'
import type { Machine } from '../../../src/engine/machine.ts'
import { type EngineMachine, engineMachine } from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'

const modules = {
  leaves_thread: 'import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n',
  ends_its_thread: 'import threading\nthread = threading.Thread(target=print)\nthread.start()\nthread.join()\n',
  raises: 'raise RuntimeError("it needs a licence")\n',
  exits: 'import os\nos._exit(3)\n',
  counts_threads: [
    'import os',
    'names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"]',
    'wrong = [name for name in names if os.environ.get(name) != "1"]',
    'if wrong: raise RuntimeError(" ".join(wrong))',
    '',
  ].join('\n'),
}

inPrivateMounts(import.meta.filename, () => {
  describe('preloaded modules', () => {
    const dir = mkdtempSync(join(tmpdir(), 'glovebox-modules-'))
    let machine: EngineMachine
    let host: Machine

    // The image is the /usr of this host; only here does it also contain the modules of this test.
    beforeAll(async () => {
      const packages = join(dir, 'usr/lib/python3/dist-packages')
      mkdirSync(packages, { recursive: true })
      for (const [name, text] of Object.entries(modules)) writeFileSync(join(packages, `${name}.py`), text)
      execFileSync('mount', ['-t', 'overlay', '-o', `lowerdir=${join(dir, 'usr')}:/usr`, 'overlay', '/usr'])
      machine = engineMachine('auto')
      host = await machine.open()
    })
    afterAll(async () => {
      await host?.close()
      machine?.remove()
      execFileSync('umount', ['--lazy', '/usr'])
      rmSync(dir, { recursive: true, force: true })
    })

    it('are accepted when they import and leave nothing behind', async () => {
      expect(await findPreloadProblem(host, ['ends_its_thread', 'json'])).toBeUndefined()
    })

    it('are rejected when they leave a thread running, which a fork would not have', async () => {
      expect(await findPreloadProblem(host, ['json', 'leaves_thread'])).toContain(
        '1 threads are left of what it imported',
      )
    })

    it('are rejected with the message of the exception they raise', async () => {
      expect(await findPreloadProblem(host, ['raises'])).toBe('import raises: RuntimeError: it needs a licence')
    })

    it('are rejected when they exit the interpreter', async () => {
      expect(await findPreloadProblem(host, ['exits'])).toBeDefined()
    })

    it('see the BLAS and OMP pools limited to one thread', async () => {
      expect(await findPreloadProblem(host, ['counts_threads'])).toBeUndefined()
    })
  })
})
