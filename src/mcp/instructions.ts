import type { Profile } from '../base/profile.ts'
import type { Offer } from '../tools/catalog.ts'

/** Returns the instructions that a client may show to its model. They mention only what the key can use. */
export function instructionsFor({ tools }: Offer, { languages, storage }: Profile): string {
  const names = tools.map(({ name }) => name)
  const persistence =
    storage.kind === 'threads' ? ' Files in the home directory persist between calls with the same thread_id.' : ''
  const sentences = [
    'Glovebox runs code for AI agents in isolated sandboxes.',
    ...(names.includes('sandbox_execute')
      ? [
          `Use sandbox_execute to run ${languages.join(', ')} code in a fresh sandbox without network access.${persistence}`,
        ]
      : []),
    ...(names.includes('execution_wait')
      ? ['Use execution_wait to follow a run that continues in the background.']
      : []),
    ...(names.length === 0 ? ['The requested toolsets contain no tools that this key can use.'] : []),
    'Read the resource glovebox://limits for the limits of a run.',
  ]
  return sentences.join(' ')
}
