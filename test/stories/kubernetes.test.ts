import { execFile } from 'node:child_process'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { directoryOf, install, installWithinMs, isAvailable, type Packages } from '../support/installed-packages.ts'

const run = promisify(execFile)
const manifest = join(import.meta.dirname, '../../deploy/kubernetes.yaml')

/** Contains the schemas that Kubernetes publishes, and needs no network. */
const validator: Packages = { from: 'PyPI', specs: ['kubernetes-validate==1.37.0'] }
const offline = !(await isAvailable(validator))

describe('the manifest for Kubernetes', () => {
  it.skipIf(offline)(
    'has only fields of the published schemas, with the right types',
    { timeout: installWithinMs },
    async () => {
      const python = join(await install(validator), 'bin/python')
      const validate = (path: string) => run(python, ['-m', 'kubernetes_validate', '--strict', path])
      await validate(manifest)
      const wrong = join(directoryOf(validator), `wrong-${process.pid}.yaml`)
      writeFileSync(wrong, readFileSync(manifest, 'utf8').replace('privileged: false', 'privilege: false'))
      try {
        await expect(validate(wrong)).rejects.toMatchObject({ stdout: expect.stringContaining('privilege') })
      } finally {
        rmSync(wrong)
      }
    },
  )
})
