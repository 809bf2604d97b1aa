import { Refusal } from '../base/errors.ts'

/** A thread or a volume of an org. `org` and `name` are as clients may give them: see `isName`. */
export interface FilesystemId {
  area: 'threads' | 'volumes'
  org: string
  name: string
}

/** What a file on the host may be called after: no separator, no leading dot, case kept. */
export const isName = (name: string): boolean => /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(name)

export const keyOf = (id: FilesystemId): string => `${id.area}/${id.org}/${id.name}`

/** That there is none, in the words of its area. */
export const unknown = ({ area, name }: FilesystemId): Refusal =>
  area === 'threads' ? new Refusal('thread_unknown', { thread: name }) : new Refusal('volume_unknown', { volume: name })

/** That somebody has it, in the words of its area. */
export const busy = ({ area, name }: FilesystemId): Refusal =>
  area === 'threads' ? new Refusal('thread_busy', { thread: name }) : new Refusal('volume_busy', { volume: name })
