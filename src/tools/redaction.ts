import { type Details, Refusal } from '../base/errors.ts'
import type { Profile } from '../base/profile.ts'
import { isSecretName } from '../base/redaction/assignments.ts'
import { Redactor } from '../base/redaction/redactor.ts'
import type { RegisteredSecret } from '../base/redaction/registered.ts'
import type { Caller } from '../core/caller.ts'
import type { Core } from '../core/core.ts'
import type { Content, ResourceContents } from './content.ts'
import type { ToolContext, ToolResult } from './tool.ts'

type Registered = readonly RegisteredSecret[]

/** Redactors by what they are built from; each is the same object until it changes. */
const redactors = new WeakMap<Registered, WeakMap<Caller['env'], WeakMap<Profile, Redactor>>>()

/**
 * Returns the redactor of a caller, who may not see by accident the secret variables of its key and profile, and the secrets
 * of its organization.
 */
export async function redactorOf(caller: Caller, core: Pick<Core, 'registeredSecrets'>): Promise<Redactor> {
  const { env, profile } = caller
  const registered = await core.registeredSecrets(caller)
  const byEnv = redactors.get(registered) ?? new WeakMap<Caller['env'], WeakMap<Profile, Redactor>>()
  redactors.set(registered, byEnv)
  const byProfile = byEnv.get(env) ?? new WeakMap<Profile, Redactor>()
  byEnv.set(env, byProfile)
  const redactor = byProfile.get(profile) ?? new Redactor([...secretsIn({ ...profile.env, ...env }), ...registered])
  byProfile.set(profile, redactor)
  return redactor
}

const secretsIn = (variables: Readonly<Record<string, string>>): RegisteredSecret[] =>
  Object.entries(variables).flatMap(([name, value]) => (isSecretName(name) ? [{ name, value }] : []))

/**
 * Calls a tool and removes secrets from everything that it sends: its result, its progress, its log messages, and the
 * details of a refusal.
 */
export async function redactedCall(
  caller: Caller,
  context: ToolContext,
  call: (context: ToolContext) => Promise<ToolResult>,
): Promise<ToolResult> {
  const redactor = await redactorOf(caller, context.core)
  const redact = (text: string): string => redactor.redact(text).text
  const { progress, log } = context
  // Output arrives in pieces, of which one can end within a secret.
  const pieces = redactor.stream()
  try {
    const result = await call({
      ...context,
      log: (level, data) => log(level, redactData(data, redact)),
      ...(progress && { progress: (each) => progress({ ...each, message: pieces.push(each.message).text }) }),
    })
    return redactResult(result, redact)
  } catch (error) {
    throw error instanceof Refusal ? new Refusal(error.code, redactData(error.details, redact) as Details) : error
  }
}

function redactResult(result: ToolResult, redact: (text: string) => string): ToolResult {
  return {
    ...result,
    content: result.content.map((item) => redactContent(item, redact)),
    ...(result.structuredContent && {
      structuredContent: redactData(result.structuredContent, redact) as Record<string, unknown>,
    }),
    ...(result._meta && { _meta: redactData(result._meta, redact) as Record<string, unknown> }),
  }
}

function redactContent(item: Content, redact: (text: string) => string): Content {
  switch (item.type) {
    case 'text':
      return { type: 'text', text: redact(item.text) }
    case 'resource':
      return { type: 'resource', resource: redactResource(item.resource, redact) }
    case 'resource_link':
      return { ...item, name: redact(item.name), ...(item.description && { description: redact(item.description) }) }
    case 'image':
    case 'audio':
      return item
  }
}

const redactResource = (resource: ResourceContents, redact: (text: string) => string): ResourceContents =>
  'text' in resource ? { ...resource, text: redact(resource.text) } : resource

/** Redacts every text of plain data. */
function redactData(value: unknown, redact: (text: string) => string): unknown {
  if (typeof value === 'string') return redact(value)
  if (Array.isArray(value)) return value.map((item) => redactData(item, redact))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, redactData(item, redact)]))
}
