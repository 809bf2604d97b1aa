/** What this machine reaches of the package registries that it is configured with. */
import { execFileSync } from 'node:child_process'
import { lookup } from 'node:dns/promises'
import { machineIndexes } from '../../src/egress/machine-indexes.ts'
import { classOf } from '../../src/outbound/address.ts'

/** Prints what a program prints; nothing where it fails or is not installed. */
export const printed = (command: string, ...args: string[]): string => {
  try {
    return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
  } catch {
    return ''
  }
}

/** The package indexes of this machine with their addresses that are not public, and whether it reaches them. */
export async function indexesOfThisMachine(): Promise<{ rules: string[]; npmIndex: string; isReached: boolean }> {
  const names = await machineIndexes()
  const rules = new Set(names)
  for (const name of names) {
    for (const { address } of await lookup(name, { all: true }).catch(() => []))
      if (classOf(address) !== 'public') rules.add(address.includes(':') ? `[${address}]:*` : `${address}:*`)
  }
  const npmIndex = printed('npm', 'config', 'get', 'registry').trim()
  const isReached = printed('curl', '-sSf', '-m', '20', '-o', '/dev/null', '-w', 'ok', `${npmIndex}is-odd`) === 'ok'
  return { rules: [...rules], npmIndex, isReached }
}
