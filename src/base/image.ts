/** The types of images that all modules share. Plain data, sent unchanged over the socket between front and runner. */
import type { Software } from './software.ts'

/** How an image wants its programs to be started: the part of an OCI configuration that is used. */
export interface ImageConfig {
  env: Readonly<Record<string, string>>
  /** Absolute path; `/` if the image sets none. */
  workdir: string
  /** Name or number, with an optional group after a colon; empty for root. */
  user: string
  /** Entry point and arguments. */
  command: readonly string[]
}

/** Where an image came from. */
export const imageSources = ['registry', 'layout', 'directory', 'archive', 'packages'] as const
export type ImageSource = (typeof imageSources)[number]

/** An image that is stored on a runner. */
export interface StoredImage {
  id: string
  /** Names that refer to it; none: it is removed when it is no longer used. */
  names: readonly string[]
  source: ImageSource
  /** Digest of its manifest, or of what it was made from. */
  digest: string
  createdAt: string
  /** Disk space of its filesystem, in bytes. */
  sizeBytes: number
  /** Files, directories and links. */
  files: number
  /** Digests of its layers as they were downloaded; they are stored once for all images. */
  layers: readonly string[]
  config: ImageConfig
  software: Software
}

/** What a change of the images is doing. */
export interface ImageProgress {
  /** `resolving`, `pulling`, `unpacking`, `downloading`, `installing` or `checking`. */
  step: string
  /** What exactly, such as the digest of a layer; may be empty. */
  detail: string
  /** Bytes or items that are done, and all of them; both 0 if unknown. */
  done: number
  total: number
}

/** The image that all runs use unless they name another: the /usr of the machine, or `data` in development mode. */
export const defaultImage = 'default'

/** The name of the image that `glovebox images build data` makes. */
export const dataImage = 'data'

/** Names that need no registry: the image with the languages of the product. */
export const imageAliases: readonly string[] = ['microsandbox/python', 'microsandbox/node', 'microsandbox/base']

/** Pattern of a reference to an image: `[registry[:port]/]path[:tag][@digest]`. */
export const imageNamePattern =
  '^(?:[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[0-9]{1,5})?/)?[a-z0-9]+(?:(?:[.]|_{1,2}|-+|/)[a-z0-9]+){0,64}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$'

/** Longest reference. */
export const imageNameMax = 512

export const isImageName = (name: string): boolean =>
  name.length <= imageNameMax && new RegExp(imageNamePattern).test(name)
