import { Refusal } from '../../base/errors.ts'
import { isSandboxId } from '../../base/ids.ts'
import type { Caller } from '../caller.ts'

/** The namespace of a sandbox whose namespace is not named. */
export const defaultNamespace = 'default'

/** Longest name: that of a label of a host name. */
export const sandboxNameMax = 63

/** How a caller names a sandbox. */
export interface SandboxRef {
  /** Its name, or its ID. */
  name: string
  /** Absent: `default`, or the namespace that the key is limited to if there is only one. */
  namespace?: string | undefined
}

/**
 * Checks the name of a sandbox or a namespace. Such a name contains nothing that a path, a shell or a cgroup interprets.
 * @throws Refusal invalid_argument.
 */
export function checkSandboxName(field: string, name: string): void {
  const problem = problemOf(name)
  if (problem !== undefined) throw new Refusal('invalid_argument', { field, problem })
}

function problemOf(name: string): string | undefined {
  if (name === '') return 'cannot be empty'
  if (name.length > sandboxNameMax) return `cannot exceed ${sandboxNameMax} characters`
  if (!/^[A-Za-z0-9_-]*$/.test(name)) return 'can only contain alphanumeric characters, hyphens, or underscores'
  if (!/^[A-Za-z0-9]/.test(name)) return 'must start with an alphanumeric character'
  // Otherwise a name could stand for another sandbox of the organization.
  if (isSandboxId(name)) return 'cannot have the form of an ID'
  return undefined
}

/**
 * Returns the namespace that a caller means, and checks that it may use it.
 * @throws Refusal invalid_argument, namespace_denied.
 */
export function namespaceOf({ namespaces }: Caller, asked: string | undefined): string {
  const namespace = asked ?? (namespaces?.length === 1 ? namespaces[0]! : defaultNamespace)
  checkSandboxName('namespace', namespace)
  if (namespaces && !namespaces.includes(namespace)) throw new Refusal('namespace_denied', { namespace })
  return namespace
}
