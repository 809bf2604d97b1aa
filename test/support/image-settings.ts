import { join } from 'node:path'
import type { ImagesSettings } from '../../src/runner/images/images.ts'

/** Settings of images in the directory of a test, which pull nothing. */
export const imageSettings = (dir: string): Omit<ImagesSettings, 'engine'> => ({
  home: join(dir, 'images'),
  mountsDir: join(dir, 'image-mounts'),
  reserveBytes: 0,
  quota: { bytes: 256 * 1024 * 1024, inodes: 20_000 },
  prefersData: false,
  registries: {},
  outboundAllow: [],
  pullerCommand: () => ['false'],
})
