import { Refusal } from '../../base/errors.ts'
import type { ImageConfig } from '../../base/image.ts'
import { parseJson } from '../../base/json.ts'
import { isDigest } from './blobs.ts'

/** BOUNDARY: manifests, indexes and configurations come from registries and files that are not trusted. */

/** What a manifest refers to. */
export interface Descriptor {
  digest: string
  size: number
}

export interface Manifest {
  config: Descriptor
  layers: readonly Descriptor[]
}

/** Longest manifest, index or configuration. */
export const documentBytesMax = 4 * 1024 * 1024
/** More layers are more than any overlay filesystem can have. */
const layersMax = 500
/** Values of a configuration that are used. */
const variablesMax = 256
const textMax = 32 * 1024

type Fields = Readonly<Record<string, unknown>>

/** Describes what is wrong with an image. */
export type Problem = (problem: string) => Refusal

export const problemsOf =
  (image: string): Problem =>
  (problem) =>
    new Refusal('image_invalid', { image, problem })

/** The architecture of this machine, as images name it. */
const architecture = process.arch === 'x64' ? 'amd64' : process.arch

/**
 * Reads a manifest, or an index of manifests for several platforms.
 * @returns the manifest, or the digest of the one for this machine.
 */
export function readManifest(bytes: Buffer, invalid: Problem): Manifest | { digest: string } {
  const document = fieldsOf(parsed(bytes, invalid))
  if (Array.isArray(document.manifests)) return { digest: chosen(document.manifests, invalid) }
  if (!Array.isArray(document.layers)) throw invalid('it has neither layers nor manifests')
  if (document.layers.length > layersMax) throw invalid(`it has more than ${layersMax} layers`)
  const layers = document.layers.map((layer: unknown) => {
    const type = fieldsOf(layer).mediaType
    if (typeof type !== 'string' || !/[.]tar([.+](gzip|zstd))?$/.test(type)) {
      throw invalid(`a layer has the type ${JSON.stringify(type)?.slice(0, 100)}`)
    }
    return descriptorOf(layer, invalid)
  })
  return { config: descriptorOf(document.config, invalid), layers }
}

function chosen(manifests: readonly unknown[], invalid: Problem): string {
  const fitting = manifests.map(fieldsOf).find(({ platform }) => {
    const { os, architecture: of } = fieldsOf(platform)
    return os === 'linux' && of === architecture
  })
  const only = manifests.length === 1 && fieldsOf(manifests[0]).platform === undefined ? manifests[0] : undefined
  if (fitting === undefined && only === undefined) throw invalid(`it has no version for linux on ${architecture}`)
  return descriptorOf(fitting ?? only, invalid).digest
}

function descriptorOf(value: unknown, invalid: Problem): Descriptor {
  const { digest, size } = fieldsOf(value)
  if (!isDigest(digest)) throw invalid('a digest is missing or not sha256')
  if (!Number.isSafeInteger(size) || (size as number) < 0) throw invalid('a size is missing')
  return { digest, size: size as number }
}

/** @returns the configuration, and the digests of the layers after decompression. */
export function readConfig(bytes: Buffer, invalid: Problem): { config: ImageConfig; diffIds: readonly string[] } {
  const document = fieldsOf(parsed(bytes, invalid))
  const { os, architecture: of } = document
  if (os !== 'linux' || of !== architecture) throw invalid(`it is for ${String(os)} on ${String(of)}`.slice(0, 100))
  const diffIds = fieldsOf(document.rootfs).diff_ids
  if (!Array.isArray(diffIds) || !diffIds.every(isDigest)) throw invalid('its layers have no digests')
  const { Env, WorkingDir, User, Entrypoint, Cmd } = fieldsOf(document.config)
  const workdir = typeof WorkingDir === 'string' && /^\/[^\0]{0,4095}$/.test(WorkingDir) ? WorkingDir : '/'
  const user = typeof User === 'string' && /^[A-Za-z0-9_.-]{1,64}(:[A-Za-z0-9_.-]{1,64})?$/.test(User) ? User : ''
  return { config: { env: variablesOf(Env), workdir, user, command: [...texts(Entrypoint), ...texts(Cmd)] }, diffIds }
}

const texts = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((text) => typeof text === 'string' && text.length <= textMax).slice(0, 256) : []

/** Variables that other names or values than those of `env` have are left out. */
function variablesOf(value: unknown): Record<string, string> {
  const pairs = texts(value).flatMap((text): [string, string][] => {
    const [, name, content] = /^([A-Za-z_][A-Za-z0-9_]{0,127})=([^\0]*)$/.exec(text) ?? []
    return name === undefined || content === undefined ? [] : [[name, content]]
  })
  return Object.fromEntries(pairs.slice(0, variablesMax))
}

function parsed(bytes: Buffer, invalid: Problem): unknown {
  try {
    return parseJson(bytes)
  } catch {
    throw invalid('a document of it is not valid JSON')
  }
}

const fieldsOf = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {}
