import type { Profile } from '../base/profile.ts'
import type { Offer } from '../tools/catalog.ts'

/** What a client may put before its model: what this server is for, in words that hold for this key. */
export function instructionsFor({ tools }: Offer, { languages, storage }: Profile): string {
  const names = tools.map(({ name }) => name)
  const files = storage.kind === 'threads' ? '; files in its home directory are kept under a thread_id' : ''
  const says = [
    'Glovebox runs code for AI agents in real isolation.',
    ...(names.includes('sandbox_execute')
      ? [`Use sandbox_execute to run ${languages.join(', ')} code in a fresh sandbox without network${files}.`]
      : []),
    ...(names.includes('execution_wait') ? ['A run that goes on by itself is followed with execution_wait.'] : []),
    ...(names.length === 0 ? ['No tools are shown with the toolsets asked for.'] : []),
    'The resource glovebox://limits states what a run may use.',
  ]
  return says.join(' ')
}
