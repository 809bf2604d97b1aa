import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { SandboxRequest } from '../../core/sandboxes/settings.ts'
import { tool } from '../tool.ts'
import { describeSandbox, namespaceArgument, textResult } from './arguments.ts'

const MiB = 1024 * 1024

const textList = (description: string) =>
  Type.Optional(
    Type.Unsafe<string[] | null>({
      anyOf: [{ type: 'array', items: { type: 'string' } }, { type: 'null' }],
      description,
    }),
  )

/** Settings in the form of microsandbox. */
export const ConfigSchema = Type.Object(
  {
    image: Type.Optional(Type.String({ description: 'Image of the sandbox; the default one if it is absent.' })),
    memory: Type.Optional(Type.Integer({ minimum: 1, description: 'Memory in MiB.' })),
    cpus: Type.Optional(Type.Number({ exclusiveMinimum: 0, description: 'CPU share in cores.' })),
    volumes: textList('Slugs of volumes of the profile; all of them by default.'),
    ports: textList('Ports of servers in the sandbox to publish at a preview address; of HOST:GUEST, GUEST counts.'),
    envs: textList('Environment variables as NAME=value.'),
    depends_on: textList('Ignored.'),
    workdir: Type.Optional(Type.String({ description: 'Working directory; /workspace by default.' })),
    shell: Type.Optional(Type.String({ description: 'Ignored.' })),
    scripts: Type.Optional(Type.Unsafe<Record<string, string>>({ type: 'object', description: 'Ignored.' })),
    exec: Type.Optional(Type.String({ description: 'Ignored.' })),
  },
  { additionalProperties: false },
)

/** The images of microsandbox are the default image, which has Python and Node. */
const localAliases: ReadonlySet<string> = new Set(['microsandbox/python', 'microsandbox/node', 'default'])

/** Returns the image that a name means; `undefined` for the default one. */
export function toImage(image: string | undefined): string | undefined {
  if (image === undefined || image === '') return undefined
  return localAliases.has(image.replace(/:latest$/, '')) ? undefined : image
}

/** Reads `NAME=value`. @throws Refusal invalid_argument. */
function toVariables(envs: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    envs.map((text) => {
      const at = text.indexOf('=')
      if (at > 0) return [text.slice(0, at), text.slice(at + 1)]
      const problem = `must contain texts such as NAME=value, not ${JSON.stringify(text.slice(0, 64))}`
      throw new Refusal('invalid_argument', { field: 'config.envs', problem })
    }),
  )
}

/**
 * Reads the ports that a configuration in the form of microsandbox publishes. The port of the host in `HOST:GUEST` has no
 * meaning, since a published port has an address of its own.
 * @throws Refusal invalid_argument.
 */
export function toPorts(texts: readonly (string | number)[]): number[] {
  return texts.map((text) => {
    const [, digits = ''] = /^(?:[^/]*:)?(\d{1,5})(?:\/tcp)?$/.exec(String(text)) ?? []
    const port = Number(digits)
    if (port >= 1 && port <= 65_535) return port
    const problem = `must contain ports such as 8000 or 8080:8000, not ${JSON.stringify(String(text).slice(0, 64))}`
    throw new Refusal('invalid_argument', { field: 'config.ports', problem })
  })
}

interface Config {
  image?: string
  memory?: number
  cpus?: number
  volumes?: string[] | null
  envs?: string[] | null
  workdir?: string
}

/** Returns the settings that a configuration in the form of microsandbox means. @throws Refusal invalid_argument. */
export function toSandboxRequest({ image, memory, cpus, volumes, envs, workdir }: Config): SandboxRequest {
  return {
    image: toImage(image),
    memoryBytes: memory === undefined ? undefined : memory * MiB,
    cpus,
    // "host:guest" mounts a directory of the machine, which clients cannot name here.
    volumes: volumes?.length ? volumes : undefined,
    env: envs?.length ? toVariables(envs) : undefined,
    workdir,
  }
}

export const sandboxStart = tool({
  name: 'sandbox_start',
  title: 'Start a sandbox',
  toolset: 'sandbox',
  capabilities: ['sandboxes.write'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true },
  describe: () =>
    'Start a new sandbox, or one that exists: an environment with files, processes and variables that persist from call to call. Files of a stopped sandbox are still there when it is started again. Use sandbox_run_code and sandbox_run_command in it.',
  input: Type.Object(
    {
      sandbox: Type.Optional(Type.String({ description: 'Name of the sandbox; a new name if it is absent.' })),
      name: Type.Optional(Type.String({ description: 'Another name of `sandbox`.' })),
      namespace: namespaceArgument,
      image: Type.Optional(Type.String({ description: 'Image of a new sandbox; best omitted.' })),
      memory: Type.Optional(Type.Integer({ minimum: 1, description: 'Memory in MiB.' })),
      cpus: Type.Optional(Type.Number({ exclusiveMinimum: 0, description: 'CPU share in cores.' })),
      env_vars: Type.Optional(
        Type.Unsafe<Record<string, string>>({ type: 'object', additionalProperties: { type: 'string' } }),
      ),
      workdir: Type.Optional(Type.String({ description: 'Working directory; /workspace by default.' })),
      config: Type.Optional(ConfigSchema),
    },
    { additionalProperties: false },
  ),
  narrow: (input) => input,
  run: async (
    caller,
    { sandbox, name = sandbox, namespace, image, memory, cpus, env_vars, workdir, config },
    { core },
  ) => {
    const flat = {
      ...(image !== undefined && { image }),
      ...(memory !== undefined && { memory }),
      ...(cpus !== undefined && { cpus }),
      ...(workdir !== undefined && { workdir }),
    }
    const asked = toSandboxRequest({ ...config, ...flat })
    const env = env_vars ? { ...asked.env, ...env_vars } : asked.env
    const request = { ...asked, env }
    const ports = toPorts(config?.ports ?? [])
    const view =
      name === undefined
        ? await core.sandboxes.create(caller, { namespace }, request)
        : await core.sandboxes.ensure(caller, { name, namespace }, request)
    for (const port of ports) await core.sandboxPorts.publish(caller, { name: view.id }, { port })
    const published = ports.length === 0 ? '' : ` Published ports: ${ports.join(', ')}.`
    return textResult(`Sandbox ${describeSandbox(view)}.${published}`)
  },
})
