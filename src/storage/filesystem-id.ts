import { Refusal } from '../base/errors.ts'

/**
 * Identifies a thread, a volume, the disk of a sandbox or an earlier state of one of an organization, or an image of the machine. See `isName` for the
 * permitted values of `org` and `name`.
 */
export interface FilesystemId {
  area: 'threads' | 'volumes' | 'sandboxes' | 'states' | 'images'
  org: string
  name: string
}

/** Whether a text can be used as a file name on the host: no separator, no leading dot, case-sensitive. */
export const isName = (name: string): boolean => /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(name)

export const keyOf = (id: FilesystemId): string => `${id.area}/${id.org}/${id.name}`

/** Returns the refusal for a missing filesystem. */
export function unknown({ area, name }: FilesystemId): Refusal {
  switch (area) {
    case 'threads':
      return new Refusal('thread_unknown', { thread: name })
    case 'volumes':
      return new Refusal('volume_unknown', { volume: name })
    case 'images':
      return new Refusal('image_unknown', { image: name })
    case 'sandboxes':
    case 'states':
      return new Refusal('sandbox_unknown', { sandbox: name, namespace: '' })
  }
}

/** Returns the refusal for a filesystem in use. */
export function busy({ area, name }: FilesystemId): Refusal {
  switch (area) {
    case 'threads':
      return new Refusal('thread_busy', { thread: name })
    case 'volumes':
      return new Refusal('volume_busy', { volume: name })
    case 'images':
      return new Refusal('in_use', { what: `The image ${name}`, by: 'a slot' })
    case 'sandboxes':
    case 'states':
      return new Refusal('sandbox_busy', { sandbox: name })
  }
}
