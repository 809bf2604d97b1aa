import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import Type, { type Static } from 'typebox'
import Value from 'typebox/value'
import { StartRefused } from '../../base/errors.ts'

const File = Type.Object({
  /** Relative to the backup. */
  path: Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._/-]*$', maxLength: 512 }),
  sizeBytes: Type.Integer({ minimum: 0 }),
  sha256: Type.String({ pattern: '^[0-9a-f]{64}$' }),
})

/** What a backup contains. It is written last: a backup without it is incomplete. */
const Manifest = Type.Object({
  format: Type.Literal(1),
  /** Version of the product that wrote it. */
  version: Type.String(),
  /** ISO 8601, UTC. */
  createdAt: Type.String(),
  instance: Type.String({ pattern: '^[0-9a-f]{8}$' }),
  hasMasterKey: Type.Boolean(),
  files: Type.Array(File),
})
export type Manifest = Static<typeof Manifest>
export type BackupFile = Static<typeof File>

export const manifestName = 'manifest.json'
/** Names in a backup. Storage keeps the paths that it has below the home directory. */
export const databaseName = 'glovebox.db'
export const masterKeyName = 'master.key'
export const storageName = 'storage'

/** Reads the manifest of a backup. @throws StartRefused if it is missing or not of this format. */
export async function readManifest(directory: string): Promise<Manifest> {
  const path = join(directory, manifestName)
  try {
    const manifest: unknown = JSON.parse(await readFile(path, 'utf8'))
    if (Value.Check(Manifest, manifest) && !manifest.files.some(({ path: file }) => file.split('/').includes('..')))
      return manifest
  } catch (error) {
    throw new StartRefused(
      `${path} cannot be read: ${(error as Error).message}.`,
      'Name a directory or a .tar file that `glovebox backup` has written completely.',
    )
  }
  throw new StartRefused(`${path} is not the manifest of a backup.`, 'Use the version of glovebox that wrote it.')
}

/** Describes a file of a backup. */
export async function describeFile(directory: string, path: string): Promise<BackupFile> {
  const hash = createHash('sha256')
  let sizeBytes = 0
  for await (const chunk of createReadStream(join(directory, path), { highWaterMark: 1024 * 1024 })) {
    hash.update(chunk as Uint8Array)
    sizeBytes += (chunk as Uint8Array).length
  }
  return { path, sizeBytes, sha256: hash.digest('hex') }
}
