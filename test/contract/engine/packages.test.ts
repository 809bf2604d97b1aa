import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { directoriesBelow, readPackages } from '../../../src/engine/images/packages.ts'

const root = mkdtempSync(join(tmpdir(), 'glovebox-usr-'))
const usr = join(root, 'usr')
afterAll(() => rmSync(root, { recursive: true }))

const system = join(usr, 'lib/python3/dist-packages')
const local = join(usr, 'local/lib/python3.11/dist-packages')

describe('the packages of an image', () => {
  it('are none where there is no interpreter', () => {
    expect(readPackages(directoriesBelow(root))).toEqual({ pythonPackages: [], pythonPackagesTotal: 0, programs: [] })
  })

  it('are the well-known ones by importance, with the version that is imported, and the number of all', () => {
    for (const name of ['Pillow-9.4.0.egg-info', 'python_dateutil-2.8.2.egg-info', 'numpy-1.24.2.dist-info'])
      mkdirSync(join(system, name), { recursive: true })
    for (const name of ['unheard_of-1.dist-info', 'cryptography.egg-info', 'lz4-4.0.2+dfsg-py3.11.egg-info', 'six.py'])
      mkdirSync(join(system, name))
    mkdirSync(join(local, 'numpy-2.0.0.dist-info'), { recursive: true })
    mkdirSync(join(usr, 'bin'), { recursive: true })
    writeFileSync(join(usr, 'bin', 'git'), '')
    expect(readPackages(directoriesBelow(root))).toEqual({
      pythonPackages: [
        { name: 'numpy', version: '2.0.0' },
        { name: 'pillow', version: '9.4.0' },
        { name: 'python-dateutil', version: '2.8.2' },
      ],
      pythonPackagesTotal: 5,
      programs: ['git'],
    })
  })
})
