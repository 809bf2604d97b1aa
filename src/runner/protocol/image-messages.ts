import type { ImageProgress, StoredImage } from '../../base/image.ts'
import type { Software } from '../../base/software.ts'

/** How an image comes to the runner. */
export type ImageChange =
  /** From the registry in its name. */
  | { kind: 'pull'; name: string }
  /** From Debian packages and what they depend on. */
  | { kind: 'build'; name: string; packages: readonly string[] }
  /** From a directory or archive of the machine. Only root may name one: the runner reads it as root. */
  | { kind: 'import'; name: string; path: string }

/** What a collection removed. */
export interface CollectedImages {
  images: number
  /** Downloaded layers, finished or not. */
  layers: number
  bytes: number
}

/** Packages in one build. */
export const imagePackagesMax = 500

/** The software and the digests of the default image, and of images by name. */
export interface ImageSoftware {
  software: Software
  /** Of the image of the machine: changes with its interpreters. */
  digest: string
  named: Readonly<Record<string, Software>>
  digests: Readonly<Record<string, string>>
}

export type ImageToRunner =
  | { type: 'images_list'; request: number }
  /** Answered with `image_progress`, at most some each second, then `image_done`. */
  | { type: 'images_change'; request: number; change: ImageChange }
  /** Ends a change. Its parts are kept for the next one. Never an error: it may cross the end. */
  | { type: 'images_stop'; request: number }
  | { type: 'images_remove'; request: number; name: string }
  | { type: 'images_collect'; request: number }

/** Whether a message is one of those above. */
export const isAboutImages = <Message extends { type: string }>(
  message: Message,
): message is Extract<Message, ImageToRunner> => message.type.startsWith('images_')

export type ImageFromRunner =
  /** After the handshake, and when what a name refers to has changed. */
  | ({ type: 'software' } & ImageSoftware)
  | { type: 'images'; request: number; images: readonly StoredImage[] }
  | { type: 'image_progress'; request: number; progress: ImageProgress }
  | { type: 'image_done'; request: number; image: StoredImage }
  | { type: 'images_collected'; request: number; collected: CollectedImages }

/**
 * Images of a runner. Changes belong to the connection and end with it; what was downloaded is kept.
 * @throws Refusal image_unknown, image_invalid, image_too_large, images_full, registry_failed, build_failed, disk_unavailable,
 * forbidden, unavailable.
 */
export interface RunnerImages {
  list(): Promise<readonly StoredImage[]>
  /** Pulls, builds or imports an image. Aborting the signal ends it. */
  change(change: ImageChange, progress: (progress: ImageProgress) => void, signal?: AbortSignal): Promise<StoredImage>
  /** Removes a name. The image is removed when it has no other name and nothing uses it. */
  remove(name: string): Promise<void>
  /** Removes images without a name that nothing uses, and layers that no image has. */
  collect(): Promise<CollectedImages>
  /** The software of an image; nothing if there is no such image or no runner. */
  softwareOf(name: string): Software
  /** The digest of the content of an image; `undefined` if there is no such image or no runner. */
  digestOf(name: string): string | undefined
}
