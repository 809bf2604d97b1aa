import type { Kysely } from 'kysely'
import { hiddenTools } from './hidden-tools.ts'
import { networkSecrets } from './network-secrets.ts'
import { packageLayers } from './package-layers.ts'
import { sandboxPorts } from './sandbox-ports.ts'
import { sandboxes } from './sandboxes.ts'
import type { Tables } from './tables.ts'
import { upstreamCredentials } from './upstream-credentials.ts'
import { upstreamSandboxes } from './upstream-sandboxes.ts'
import { usedLinks } from './used-links.ts'

/** The nouns whose file in this folder defines both their methods and their table. */
const nouns = {
  hiddenTools,
  networkSecrets,
  packageLayers,
  sandboxes,
  sandboxPorts,
  upstreamCredentials,
  upstreamSandboxes,
  usedLinks,
}

export type NounRows = { [Noun in keyof typeof nouns]: ReturnType<(typeof nouns)[Noun]> }

/** Returns the methods of these nouns. @param db a transaction, or the database. */
export const openNouns = (db: Kysely<Tables>): NounRows =>
  Object.fromEntries(Object.entries(nouns).map(([noun, open]) => [noun, open(db)])) as NounRows
