import type { Kysely } from 'kysely'
import { hiddenTools } from './hidden-tools.ts'
import type { Tables } from './tables.ts'
import { usedLinks } from './used-links.ts'

/** The nouns whose file in this folder defines both their methods and their table. */
const nouns = { hiddenTools, usedLinks }

export type NounRows = { [Noun in keyof typeof nouns]: ReturnType<(typeof nouns)[Noun]> }

/** Returns the methods of these nouns. @param db a transaction, or the database. */
export const openNouns = (db: Kysely<Tables>): NounRows =>
  Object.fromEntries(Object.entries(nouns).map(([noun, open]) => [noun, open(db)])) as NounRows
