import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { EngineHost } from '../../../src/engine/host.ts'
import { preloadProblem } from '../../../src/engine/jails/preload.ts'
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
  describe('modules that a profile wants imported ahead', () => {
    const dir = mkdtempSync(join(tmpdir(), 'glovebox-modules-'))
    let machine: EngineMachine
    let host: EngineHost

    // The image is this machine's /usr; here alone it has the modules of this test, too.
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

    it('are taken when they import and leave nothing behind', async () => {
      expect(await preloadProblem(host, ['ends_its_thread', 'json'])).toBeUndefined()
    })

    it('are refused when they leave a thread behind, which no fork would have', async () => {
      expect(await preloadProblem(host, ['json', 'leaves_thread'])).toContain('1 threads are left of what it imported')
    })

    it('are refused in the words of what they raise', async () => {
      expect(await preloadProblem(host, ['raises'])).toBe('import raises: RuntimeError: it needs a licence')
    })

    it('are refused when they end the interpreter', async () => {
      expect(await preloadProblem(host, ['exits'])).toBeDefined()
    })

    it('find the pools of BLAS and OMP at one thread', async () => {
      expect(await preloadProblem(host, ['counts_threads'])).toBeUndefined()
    })
  })
})
