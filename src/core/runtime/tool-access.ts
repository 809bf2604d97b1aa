import { Refusal } from '../../base/errors.ts'
import { type Admin, hasRole, type Role, requireInstance, type ToolPatterns } from '../admin/admin.ts'

/** What a runtime tool does, which decides who may call it. */
export interface ToolEffect {
  readonly name: string
  /** Changes something. Each call is recorded in the audit log. */
  readonly isWrite: boolean
  /** Slows the server down while it works. One such call is made at a time. */
  readonly isExpensive: boolean
  /** Returns data that can contain secrets. */
  readonly isSensitive: boolean
}

/** Returns the role that a tool requires: reading is for everyone, what costs or changes something is not. */
export const roleFor = ({ isWrite, isExpensive, isSensitive }: ToolEffect): Role =>
  isSensitive ? 'owner' : isWrite || isExpensive ? 'admin' : 'member'

/** Returns whether an administrator may call a tool. */
export const mayCall = (admin: Admin, tool: ToolEffect): boolean =>
  admin.orgId === null && hasRole(admin, roleFor(tool)) && isPermitted(tool.name, admin.runtimeTools)

/** Requires that an administrator may call a tool. @throws Refusal `forbidden`. */
export function requireTool(admin: Admin, tool: ToolEffect): void {
  requireInstance(admin, roleFor(tool))
  if (!isPermitted(tool.name, admin.runtimeTools)) {
    throw new Refusal('forbidden', { need: `a token that is not limited to other tools than ${tool.name}` })
  }
}

function isPermitted(name: string, patterns: ToolPatterns | undefined): boolean {
  if (patterns === undefined) return true
  return (
    patterns.included.some((pattern) => matches(pattern, name)) && !patterns.excluded.some((one) => matches(one, name))
  )
}

/** Compares without regular expressions, whose time a pattern with many `*` could make exponential. */
function matches(pattern: string, name: string): boolean {
  const [first = '', ...rest] = pattern.split('*')
  if (rest.length === 0) return pattern === name
  const last = rest.pop()!
  if (!name.startsWith(first) || !name.endsWith(last) || name.length < first.length + last.length) return false
  let at = first.length
  for (const part of rest) {
    const found = name.indexOf(part, at)
    if (found < 0) return false
    at = found + part.length
  }
  return at <= name.length - last.length
}
