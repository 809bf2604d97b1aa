/** Reads `server.json` of the MCP registry. */
import { isObject, type Json } from './json-object.ts'

/**
 * Returns the entry of a `server.json` as a configuration file of a client would have it: of its remote, or else of the
 * package that can be started here; or why neither exists.
 * https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/server-json/generic-server-json.md
 */
export function entryOfRegistry(content: Json): Json | string {
  const { description } = content
  const remotes = objectsIn(content.remotes)
  const remote = remotes.find(({ type }) => type === 'streamable-http') ?? remotes.find(({ type }) => type === 'sse')
  if (remote !== undefined) {
    const { type, url } = remote
    return { type, url, description, headers: valuesOf(remote.headers) }
  }
  const known = objectsIn(content.packages).find((one) => isStdio(one) && commandOf(one) !== undefined)
  if (known === undefined) {
    return 'it has no remote of the type streamable-http or sse, and no package of npm or PyPI'
  }
  const [command, ...args] = commandOf(known)!
  return { command, args, description, env: valuesOf(known.environmentVariables) }
}

const objectsIn = (list: unknown): Json[] => (Array.isArray(list) ? list.filter(isObject) : [])

/** Returns the values that a registry knows. Others are set by an administrator. */
const valuesOf = (list: unknown): Json =>
  Object.fromEntries(
    objectsIn(list).flatMap(({ name, value, default: byDefault }) => {
      const known = value ?? byDefault
      return known === undefined ? [] : [[name, known]]
    }),
  )

const isStdio = ({ transport }: Json): boolean => !isObject(transport) || transport.type === 'stdio'

/** Returns the command that starts a package; `undefined` if no runner of packages knows it. */
function commandOf({ registryType, registry_name: formerType, identifier, name, version, ...rest }: Json) {
  const id = identifier ?? name
  if (typeof id !== 'string') return undefined
  const exact = typeof version === 'string' && version !== '' ? version : undefined
  const before = argumentsOf(rest.runtimeArguments)
  const after = argumentsOf(rest.packageArguments)
  switch (registryType ?? formerType) {
    case 'npm':
      return ['npx', ...before, '-y', exact === undefined ? id : `${id}@${exact}`, ...after]
    case 'pypi':
      return ['uvx', ...before, exact === undefined ? id : `${id}@${exact}`, ...after]
    default:
      return undefined
  }
}

function argumentsOf(list: unknown): unknown[] {
  return objectsIn(list).flatMap(({ type, name, value, default: byDefault }) => {
    const known = value ?? byDefault
    if (type !== 'named') return known === undefined ? [] : [known]
    return known === undefined ? [name] : [name, known]
  })
}
