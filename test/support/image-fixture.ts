/** Images for tests: a machine with its images, in a directory of its own. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import type { Machine } from '../../src/engine/machine.ts'
import { createLog } from '../../src/observe/log.ts'
import { Images, type ImagesSettings } from '../../src/runner/images/images.ts'
import { engineMachine } from './engine-machine.ts'
import { imageSettings } from './image-settings.ts'

export interface ImageRoom {
  dir: string
  host: Machine
  images: Images
  /** Opens the same home again, as a new runner does. */
  reopen(): Promise<void>
  /** Writes an archive and returns its path. */
  file(name: string, content: Buffer): string
  close(): Promise<string[]>
}

export async function openImageRoom(
  options: (dir: string) => Partial<ImagesSettings> = () => ({}),
): Promise<ImageRoom> {
  const dir = mkdtempSync(join(tmpdir(), 'glovebox-images-'))
  chmodSync(dir, 0o711)
  const machine = engineMachine('auto')
  const host = await machine.open()
  const log = createLog({ level: 'error', format: 'json', destination: new PassThrough().resume(), bindings: {} })
  const settings = { ...imageSettings(dir), engine: machine.settings, ...options(dir) }
  const room: ImageRoom = {
    dir,
    host,
    images: await Images.open(settings, host, log),
    async reopen() {
      await room.images.close()
      room.images = await Images.open(settings, host, log)
    },
    file(name, content) {
      writeFileSync(join(dir, name), content)
      return join(dir, name)
    },
    async close() {
      await room.images.close()
      await host.close()
      const left = machine.leftovers()
      machine.remove()
      rmSync(dir, { recursive: true, force: true })
      return left
    },
  }
  return room
}
