import type { NounRows } from './nouns.ts'
import type { Store } from './store.ts'

/** The rows that one administrative action can change, in the transaction of its audit line. */
export type Rows = Pick<
  Store,
  | 'orgs'
  | 'keys'
  | 'storedProfiles'
  | 'limits'
  | 'adminTokens'
  | 'orgSettings'
  | 'secrets'
  | 'volumes'
  | 'upstreams'
  | keyof NounRows
>

/** What administrative actions use. Within `together`, all of it belongs to one transaction. */
export type AdminStore = Rows & Pick<Store, 'audited' | 'profiles'>
