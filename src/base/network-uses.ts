import type { NetworkUse } from './network.ts'

/** Sums up connections. Names of hosts can be personal data, the totals are not. */
export const totalsOf = (uses: readonly NetworkUse[]) => ({
  connections: uses.reduce((sum, { connections }) => sum + connections, 0),
  refused: uses.reduce((sum, { verdict, connections }) => sum + (verdict.startsWith('refused_') ? connections : 0), 0),
  bytes: uses.reduce((sum, { bytes }) => sum + bytes, 0),
})
