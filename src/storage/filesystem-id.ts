import { Refusal } from '../base/errors.ts'

/** Identifies a thread or volume of an organization. See `isName` for the permitted values of `org` and `name`. */
export interface FilesystemId {
  area: 'threads' | 'volumes'
  org: string
  name: string
}

/** Whether a text can be used as a file name on the host: no separator, no leading dot, case-sensitive. */
export const isName = (name: string): boolean => /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(name)

export const keyOf = (id: FilesystemId): string => `${id.area}/${id.org}/${id.name}`

/** Returns the refusal for a missing thread or volume. */
export const unknown = ({ area, name }: FilesystemId): Refusal =>
  area === 'threads' ? new Refusal('thread_unknown', { thread: name }) : new Refusal('volume_unknown', { volume: name })

/** Returns the refusal for a thread or volume in use. */
export const busy = ({ area, name }: FilesystemId): Refusal =>
  area === 'threads' ? new Refusal('thread_busy', { thread: name }) : new Refusal('volume_busy', { volume: name })
