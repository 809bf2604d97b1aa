import type { Profile } from '../base/profile.ts'
import type { Offer } from '../tools/catalog.ts'

/** What a client may put before its model: what this server is for, in words that hold for this key. */
export function instructionsFor({ tools }: Offer, { languages }: Profile): string {
  const use = tools.some(({ name }) => name === 'sandbox_execute')
    ? `Use sandbox_execute to run ${languages.join(', ')} code; each call starts in a fresh sandbox without network.`
    : 'No tools are shown with the toolsets asked for.'
  return `Glovebox runs code for AI agents in real isolation. ${use}`
}
