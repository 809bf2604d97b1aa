import { dataPackages } from '../../base/data-packages.ts'
import { Refusal } from '../../base/errors.ts'
import { dataImage, type ImageProgress, type StoredImage } from '../../base/image.ts'
import type { Software } from '../../base/software.ts'
import type { Runner } from '../../runner/protocol/messages.ts'
import { sandboxStates } from '../../store/sandbox-rows.ts'
import type { ImageJob, ImageJobs } from '../images/image-jobs.ts'
import { type Admin, type AdminContext, requireInstance, withAudit } from './admin.ts'

/** How an image is added. Only commands of root import files of the machine. */
export type ImageChange =
  | { kind: 'pull'; name: string }
  | { kind: 'build'; name: string; packages: readonly string[] }
  | { kind: 'import'; name: string; path: string }

export interface ImageView {
  id: string
  names: readonly string[]
  source: StoredImage['source']
  digest: string
  created_at: string
  size_bytes: number
  files: number
  layers: readonly string[]
  env: Readonly<Record<string, string>>
  workdir: string
  user: string
  command: readonly string[]
  interpreters: Readonly<Record<string, string>>
  python_packages: Readonly<Record<string, string>>
  python_packages_total: number
  programs: readonly string[]
}

export interface CollectedView {
  images: number
  layers: number
  bytes: number
}

/** Lists the images of the server by name. @throws Refusal forbidden, unavailable. */
export async function listImages(on: AdminContext, admin: Admin): Promise<ImageView[]> {
  requireInstance(admin, 'member')
  const images = await imagesOf(on).list()
  return images.map(toView).toSorted((a, b) => ((a.names[0] ?? a.id) < (b.names[0] ?? b.id) ? -1 : 1))
}

/** Returns an image by name or ID. @throws Refusal forbidden, image_unknown, unavailable. */
export async function getImage(on: AdminContext, admin: Admin, name: string): Promise<ImageView> {
  const found = (await listImages(on, admin)).find((image) => image.names.includes(name) || image.id === name)
  if (found === undefined) throw new Refusal('image_unknown', { image: name.slice(0, 128) })
  return found
}

/**
 * Pulls, builds or imports an image. What the name referred to before is removed when nothing uses it.
 * @param progress called with each step.
 * @throws Refusal forbidden, image_invalid, image_too_large, registry_failed, build_failed, disk_unavailable, unavailable.
 */
export async function changeImage(
  on: AdminContext,
  admin: Admin,
  change: ImageChange,
  progress: (progress: ImageProgress) => void,
  signal?: AbortSignal,
): Promise<ImageView> {
  requireInstance(admin, 'admin')
  const image = await imagesOf(on).change(change, progress, signal)
  const details = { kind: change.kind, digest: image.digest }
  await withAudit(on.store, { admin, action: 'image.add', orgId: null, target: change.name, details }, async () => {})
  return toView(image)
}

/**
 * Starts a pull, or a build if packages are given, and returns at once.
 * @throws Refusal forbidden, invalid_argument, unavailable.
 */
export function startImage(
  on: AdminContext,
  admin: Admin,
  { name, packages }: { name: string; packages?: readonly string[] },
): ImageJob {
  requireInstance(admin, 'admin')
  const change: ImageChange =
    packages === undefined ? { kind: 'pull', name } : { kind: 'build', name, packages: packagesOf(name, packages) }
  return jobsOf(on).start(change, (progress, signal) => changeImage(on, admin, change, progress, signal))
}

/** Lists pulls and builds, newest first. @throws Refusal forbidden. */
export function listImageJobs(on: AdminContext, admin: Admin): ImageJob[] {
  requireInstance(admin, 'member')
  return jobsOf(on).list()
}

/** The packages of an image. The image `data` has the usual ones, and those that are given. */
export function packagesOf(name: string, given: readonly string[]): readonly string[] {
  const packages = [...new Set([...(name === dataImage ? dataPackages() : []), ...given])]
  if (packages.length > 0) return packages
  throw new Refusal('invalid_argument', { field: 'packages', problem: 'must not be empty, except for the image data' })
}

/**
 * Removes a name; the image is removed when it has no other name and nothing uses it.
 * @param name an ID removes all names.
 * @throws Refusal as `getImage`; in_use if a profile or a named sandbox, also a stopped one, names it.
 */
export async function removeImage(on: AdminContext, admin: Admin, name: string): Promise<void> {
  requireInstance(admin, 'admin')
  const { id, names } = await getImage(on, admin, name)
  const isLast = name === id || names.every((other) => other === name)
  const by = await userOf(on, new Set(isLast ? [...names, id] : [name]))
  if (by !== undefined) throw new Refusal('in_use', { what: `The image ${name}`, by })
  await imagesOf(on).remove(name)
  await withAudit(on.store, { admin, action: 'image.remove', orgId: null, target: name, details: {} }, async () => {})
}

/** Returns what would lack its image without these names. Threads have the image of their profile. */
async function userOf({ profiles, store }: AdminContext, names: ReadonlySet<unknown>): Promise<string | undefined> {
  const configured = profiles.configured.find(({ image }) => names.has(image))
  if (configured !== undefined) return `the profile ${configured.name}`
  const stored = (await store.storedProfiles.all()).find((row) => names.has(profiles.settingsOf(row).image))
  if (stored !== undefined) return `the profile ${stored.name} of the organization ${stored.orgId}`
  const sandbox = (await store.sandboxes.inStates(sandboxStates)).find(({ image }) => names.has(image))
  return sandbox && `the sandbox ${sandbox.id} of the organization ${sandbox.orgId}`
}

/** Removes images without a name, and layers that no image has. @throws Refusal forbidden, unavailable. */
export async function collectImages(on: AdminContext, admin: Admin): Promise<CollectedView> {
  requireInstance(admin, 'admin')
  return imagesOf(on).collect()
}

function imagesOf({ runner }: AdminContext): Runner['images'] {
  if (runner === undefined) throw new Refusal('unavailable', { reason: 'no server is running' })
  return runner.images
}

function jobsOf({ imageJobs }: AdminContext): ImageJobs {
  if (imageJobs === undefined) throw new Refusal('unavailable', { reason: 'no server is running' })
  return imageJobs
}

const toView = (image: StoredImage): ImageView => ({
  id: image.id,
  names: image.names,
  source: image.source,
  digest: image.digest,
  created_at: image.createdAt,
  size_bytes: image.sizeBytes,
  files: image.files,
  layers: image.layers,
  env: image.config.env,
  workdir: image.config.workdir,
  user: image.config.user,
  command: image.config.command,
  ...toSoftware(image.software),
})

const toSoftware = ({ interpreters, pythonPackages, pythonPackagesTotal, programs }: Software) => ({
  interpreters: Object.fromEntries(interpreters.map(({ language, version }) => [language, version])),
  python_packages: Object.fromEntries(pythonPackages.map(({ name, version }) => [name, version])),
  python_packages_total: pythonPackagesTotal,
  programs,
})
