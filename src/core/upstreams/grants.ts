import type { Caller } from '../caller.ts'

/** Pattern of the name of an upstream: `vendor/name`. */
export const upstreamName = /^[a-z0-9][a-z0-9._-]{0,63}\/[a-z0-9][a-z0-9._-]{0,63}$/

/** Pattern of an entry in the tools of a key: `vendor/name` for all tools of an upstream, `vendor/name#tool` for one. */
const grantForm = /^([a-z0-9][a-z0-9._-]{0,63}\/[a-z0-9][a-z0-9._-]{0,63})(?:#(.{1,128}))?$/

/** Returns whether an entry in the tools of a key names an upstream or a tool of one. */
export const isUpstreamGrant = (entry: string): boolean => grantForm.test(entry)

/**
 * Returns which tools of an upstream a key may call.
 * @returns `all`, or the names; an empty set if the key may not use the upstream.
 */
export function grantedTools({ tools }: Pick<Caller, 'tools'>, upstream: string): 'all' | ReadonlySet<string> {
  if (tools === null) return 'all'
  const names = new Set<string>()
  for (const entry of tools) {
    const [, name, tool] = grantForm.exec(entry) ?? []
    if (name !== upstream) continue
    if (tool === undefined) return 'all'
    names.add(tool)
  }
  return names
}
