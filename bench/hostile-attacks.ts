import type { Attack } from './hostile-attack.ts'
import { codeAttacks } from './hostile-code.ts'
import { requestAttacks } from './hostile-requests.ts'
import { sandboxAttacks } from './hostile-sandboxes.ts'

/** Everything that a hostile key can do, by name. */
export const attacks: Readonly<Record<string, Attack>> = { ...codeAttacks, ...requestAttacks, ...sandboxAttacks }
