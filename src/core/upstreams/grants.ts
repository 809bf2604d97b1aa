import type { Caller } from '../caller.ts'

/** The form of the name of an upstream. */
export const upstreamName = /^[a-z0-9][a-z0-9._-]{0,63}\/[a-z0-9][a-z0-9._-]{0,63}$/

/** In the tools of a key: an upstream with all of its tools, or one tool of it. */
const grantForm = /^([a-z0-9][a-z0-9._-]*\/[a-z0-9][a-z0-9._-]*)(?:#(.{1,128}))?$/

/** Whether an entry in the tools of a key allows upstreams: `vendor/name` or `vendor/name#tool`. */
export const isUpstreamGrant = (entry: string): boolean => grantForm.test(entry)

/**
 * Returns which tools of an upstream a key may call.
 * @returns `all`, or the names; none if the key may not use the upstream.
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
