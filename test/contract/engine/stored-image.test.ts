import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { openStoredImage } from '../../../src/engine/images/stored.ts'
import { engineMachine } from '../../support/engine-machine.ts'

const dir = mkdtempSync(join(tmpdir(), 'glovebox-stored-image-'))
const machine = engineMachine('auto')
afterAll(() => {
  machine.remove()
  rmSync(dir, { recursive: true })
})

describe('a stored image', () => {
  it('finds packages of profiles with every Python that it has, and keeps what it does at its start', async () => {
    const root = join(dir, 'image')
    for (const version of ['python3.11', 'python3.12', 'python3.13']) {
      mkdirSync(join(root, 'usr/local/lib', version, version === 'python3.11' ? 'dist-packages' : 'site-packages'), {
        recursive: true,
      })
    }
    const own = 'usr/local/lib/python3.13/site-packages/sitecustomize.py'
    writeFileSync(join(root, own), 'own = True\n')
    const fd = openSync(root, 'r')
    const opened = await openStoredImage(join(dir, 'open'), { path: root, root: { fd } }, machine.settings, {
      env: {},
      hasNode: false,
    })
    try {
      const top = join(opened.slotRoot, 'image/top')
      const text = (path: string) => readFileSync(join(top, path), 'utf8')
      expect(text('usr/local/lib/python3.12/site-packages/sitecustomize.py')).toContain('/opt/packages/python/')
      expect(text(own)).toMatch(/^own = True\n(?:.*\n)*.*\/opt\/packages\/python\//)
      expect(() => text('usr/local/lib/python3.11/site-packages/sitecustomize.py')).toThrow('ENOENT')
      expect(readlinkSync(join(top, 'opt/packages'))).toBe('/volumes/profile.packages')
      expect(readlinkSync(join(top, 'node_modules'))).toBe('/opt/packages/node/node_modules')
    } finally {
      await opened.release()
      closeSync(fd)
    }
  })
})
