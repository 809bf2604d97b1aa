import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Capability, capabilities } from '../../src/base/capabilities.ts'
import { Refusal } from '../../src/base/errors.ts'
import { adminToolset } from '../../src/base/profile.ts'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import type { Caller } from '../../src/core/caller.ts'
import type { WorkspaceHost } from '../../src/core/workspaces/workspaces.ts'
import { isRaw, type Operation } from '../../src/http/operation.ts'
import { operations } from '../../src/http/operations.ts'
import { productInventory } from '../../src/tools/catalog.ts'
import { allBut, type Denied, grantOf, sampleOf, singleGrants, verbsOf, walk } from '../support/capability-walk.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'

/** Rights of this server come from the single grants alone: the tools of the product are offered and grant nothing. */
const tools = [...productInventory.tools.map((tool) => ({ ...tool, capabilities: [] })), ...singleGrants]
const toolNames = tools.map(({ name }) => name)

/** Calls end here, after their rights were checked. */
const noWorkspaces: WorkspaceHost = {
  open: async () => {
    throw new Refusal('unavailable', { reason: 'this test has no workspaces' })
  },
}

let front: Front
let org: string
/** A key that is not limited, and a run of it that has ended. */
let unlimited: string
let ended: string
beforeAll(async () => {
  front = await openFront(
    threadsProfile,
    { dev: false, trustedProxies: ['127.0.0.1'] },
    undefined,
    tools,
    undefined,
    noWorkspaces,
  )
  org = (await createOrg(front.core.adminContext, operator, 'capabilities')).id
  unlimited = await keyWith(null)
  const run = await front.post('/v1/sandbox/execute', { language: 'bash', code: 'echo done' }, as(unlimited))
  ended = ((await run.json()) as { trace_id: string }).trace_id
})
afterAll(() => front.close())

const keyWith = async (names: string[] | null): Promise<string> =>
  (await createKey(front.core.adminContext, operator, org, { tools: names }, toolNames)).secret

/** Every operation is called once for each capability; the time only ends what hangs. */
const walkWithinMs = 240_000

const as = (secret: string) => ({ 'x-api-key': secret })

/** A run of another key that goes on until it is cancelled. */
/** One that exists: the tool calls a second verb after the first has found it. */
async function startSandbox(): Promise<string> {
  await front.post('/v1/sandboxes', { name: 'published' }, as(unlimited))
  return 'published'
}

async function startRun(secret: string): Promise<string> {
  const caller = await front.core.authenticate(secret)
  const request = { language: 'bash', code: 'sleep 30', detached: true, kept: true } as const
  const events = front.core.execute(caller, request, new AbortController().signal)
  const { value: accepted } = await events.next()
  front.core.drainInBackground(events)
  return accepted?.kind === 'accepted' ? accepted.runId : ''
}

/** The capability that a refusal names, by whichever API it came. */
async function deniedIn(response: Response): Promise<Denied> {
  const text = await response.text()
  const named = /does not have the capability '([a-z.]+)'/.exec(text)?.[1]
  if (named !== undefined && response.url.includes('/v1/')) expect(response.status).toBe(403)
  return (named as Capability | undefined) ?? null
}

describe('a verb of core', () => {
  /** What any caller may ask: about itself, or about nothing that belongs to an organization. */
  const needless = [
    'drainInBackground',
    'links.read',
    'links.use',
    'links.giveBack',
    'callerOfLink',
    'tasks.isOrphan',
    'tasks.settle',
    'hiddenTools',
    'registeredSecrets',
    'authenticate',
    'authenticateAdmin',
    'developer',
    'recover',
    'close',
    'requireCapability',
    'countUpstreamCall',
    'noteUpstreamUse',
    'announceUpstreamChange',
    'softwareOf',
  ]
  /** Not verbs: what administration, runtime tools, previews, the gateway, the MCP protocol and the registry of open requests work on. */
  const parts = [
    'sealing',
    'threadFiles',
    'adminContext',
    'runtime',
    'readiness',
    'openRequests',
    'previews',
    'upstreamCredentials',
    'upstreamPrograms',
    'seenTools',
  ]

  const verbs = (core: object) =>
    [...verbsOf(core)].filter(([path]) => !needless.includes(path) && !parts.includes(path.split('.')[0]!))

  it('names the capability that it needs', () => {
    expect(verbs(front.core).filter(([, capability]) => capability === null)).toEqual([])
  })

  it('is found by this test when it names none', () => {
    const bad = { ...front.core, peek: async (_caller: Caller) => {} }
    expect(verbs(bad).filter(([, capability]) => capability === null)).toEqual([['peek', null]])
  })

  it('needs each capability that there is', () => {
    const needed = new Set(verbs(front.core).map(([, capability]) => capability))
    expect([...needed].sort()).toEqual([...capabilities].sort())
  })

  it('refuses a caller without its capability before it looks at anything else', async () => {
    for (const [path, capability] of verbs(front.core)) {
      const caller = await front.core.authenticate(await keyWith(allBut('execute', capability!)))
      expect([path, await denied(path, caller)]).toEqual([path, capability])
    }
  })

  async function denied(path: string, caller: Caller): Promise<unknown> {
    const [outer = '', inner] = path.split('.')
    const noun = front.core as unknown as Record<string, object>
    const verb = (
      inner === undefined ? noun[outer] : (noun[outer] as Record<string, object>)[inner]
    ) as CallableFunction
    try {
      const answer: unknown = verb(caller)
      await (typeof (answer as AsyncGenerator).next === 'function' ? (answer as AsyncGenerator).next() : answer)
      return null
    } catch (error) {
      return (error as { details?: { capability?: unknown } }).details?.capability
    }
  }
})

describe('an operation of the REST API', () => {
  /** MCP requires the capabilities of each tool; see below. */
  const ofKeys = operations
    .filter(
      ({ access, group }) =>
        access === 'key' && !['MCP', 'MCP over HTTP with SSE', 'microsandbox'].includes(group.name),
    )
    .map((operation) => ({
      ...operation,
      name: operation.id,
      capabilities: operation.capability === null ? [] : [operation.capability],
    }))

  /** Calls an operation with a sample of its body, on objects that mostly do not exist. */
  const call = ({ id, method, path, body }: Operation, secret: string): Promise<Response> => {
    const sent = { ...(body && !isRaw(body) ? (sampleOf(body) as object) : {}), ...bodies[id] }
    return fetch(front.url + path.replaceAll(/\{\w+\}/g, ended), {
      method,
      headers: { ...as(secret), ...(method !== 'GET' && { 'content-type': 'application/json' }) },
      ...(method !== 'GET' && { body: JSON.stringify(sent) }),
    })
  }

  /** What a schema cannot say. */
  const bodies: Readonly<Record<string, object>> = { deleteFiles: { path: 'f' } }

  it('refuses a key that has no capability', async () => {
    const secret = await keyWith(['execution_get'])
    for (const operation of ofKeys) {
      expect([operation.id, (await call(operation, secret)).status]).toEqual([operation.id, 403])
    }
  })

  it(
    'needs the capability that it declares, and no other',
    async () => {
      const keys = new Map<Capability, string>()
      for (const missing of capabilities) keys.set(missing, await keyWith(allBut(missing)))
      const problems = await walk(ofKeys, async (operation, missing) =>
        deniedIn(await call(operation, keys.get(missing) ?? '')),
      )
      expect(problems).toEqual([])
    },
    walkWithinMs,
  )
})

describe('an operation that requires no API key', () => {
  it('is public, carries a signed link, or requires an admin token', () => {
    const open = operations.filter(({ access }) => access === 'open').map(({ path }) => path)
    const isPublic = [
      '/api/v1/health',
      ...['/healthz', '/readyz', '/openapi.json', '/oauth/client.json'],
      ...['/', '/assets/page.css', '/assets/page.js', '/docs', '/docs/{page}'],
      // Nothing of an organization is in them: they load it with the rights of a login.
      ...['/console', '/assets/console.css', '/assets/console.js', '/assets/views.js', '/assets/elements.js'],
    ]
    expect(open.filter((path) => path !== '/v1/blobs/{token}' && !isPublic.includes(path))).toEqual([])
    const ofAdmins = operations.filter(({ access }) => access === 'admin token').map(({ path }) => path)
    expect(ofAdmins.filter((path) => !path.startsWith('/admin/') && path !== '/console/login')).toEqual([])
  })
})

describe('a resource of MCP', () => {
  /** What each of them is refused without: nothing for what describes the key itself. */
  const needs: Readonly<Record<string, readonly Capability[]>> = {
    'glovebox://limits': [],
    'glovebox://threads/{thread_id}/files/{+path}': ['files.read'],
  }
  const uris = [
    ...productInventory.resources.map((resource) => resource.listing(threadsProfile).uri),
    ...productInventory.templates.map(({ listing }) => listing.uriTemplate),
  ]

  it('needs the capability of the tool that does the same', async () => {
    expect(uris).toEqual(Object.keys(needs))
    expect(productInventory.prompts).toEqual([])
    const fileTool = productInventory.templates[0]?.tool ?? ''
    for (const uri of uris) {
      for (const missing of capabilities) {
        const secret = await keyWith([fileTool, ...allBut(missing)])
        const params = { uri: uri.replaceAll(/\{\W?\w+\}/g, 'x') }
        const read = { jsonrpc: '2.0', id: 1, method: 'resources/read', params }
        const denied = await deniedIn(await front.post('/mcp?toolsets=execute,files', read, as(secret)))
        expect([uri, missing, denied]).toEqual([uri, missing, needs[uri]?.includes(missing) ? missing : null])
      }
    }
  })
})

describe('a tool of MCP', () => {
  /** Runtime tools are for admin tokens, whatever a key may do: `runtime-rpc.test.ts`. */
  const ofKeys = productInventory.tools.filter(({ toolset }) => toolset !== adminToolset)
  const all = ofKeys.map((tool) => ({ ...tool, listing: tool.listing(threadsProfile, () => true) }))
  /** Tools that call the agent of a workspace share one handler; one that reads and one that changes stand for them. */
  const sameHandler = (name: string) =>
    !['Read', 'Write', 'review_changes', 'secret', 'secrets_available'].includes(name)
  const declared = all.filter(({ name, toolset }) => toolset !== 'workspace' || !sameHandler(name))

  /** What a schema cannot say: which runs there are, and which of two optional arguments is given. */
  const argumentsOf: Readonly<Record<string, () => Promise<object>>> = {
    threads_fork: async () => ({ to: 'copy' }),
    files_upload: async () => ({ content: 'x' }),
    sandbox_ports: async () => ({ sandbox: await startSandbox(), port: 8000 }),
    execution_get: async () => ({ trace_id: ended }),
    execution_wait: async () => ({ trace_id: ended }),
    execution_cancel: async () => ({ trace_id: await startRun(unlimited) }),
  }

  it('is walked here wherever its file is', () => {
    const folder = fileURLToPath(new URL('../../src/tools/', import.meta.url))
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'))
    const named = files.flatMap((path) =>
      [...readFileSync(join(folder, path), 'utf8').matchAll(/= tool\(\{\s+(?:\.{3}\w+,\s+)?name: '(\w+)'/g)].map(
        ([, name]) => name,
      ),
    )
    const shared = ['Read', 'Write']
    expect([...named, ...shared].sort()).toEqual(declared.map(({ name }) => name).sort())
  })

  it('needs the capabilities that it declares, and no other', async () => {
    const problems = await walk(declared, async ({ name, listing }, missing) => {
      const secret = await keyWith([name, ...allBut(missing)])
      const sample = sampleOf(listing.inputSchema) as object
      const given = { ...sample, ...(await argumentsOf[name]?.()) }
      const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: given } }
      return deniedIn(await front.post('/mcp?toolsets=execute,files,executions,sandbox,workspace', call, as(secret)))
    })
    expect(problems).toEqual([])
  })

  it('is found by this test when it declares nothing, or a verb that it calls does not check', async () => {
    const bad = { name: 'bad', capabilities: [] }
    expect(await walk([bad], async () => null)).toEqual(['bad declares no capability'])
    const unchecked = { name: 'unchecked', capabilities: ['files.read'] as const }
    expect(await walk([unchecked], async () => null)).toEqual(['unchecked is answered without files.read'])
    const undeclared = { name: 'undeclared', capabilities: ['files.read'] as const }
    const call = async (_: unknown, missing: Capability) => (missing.startsWith('files.') ? missing : null)
    expect(await walk([undeclared], call)).toEqual([
      'undeclared is refused for files.write, with only files.write missing',
    ])
  })
})

describe('a key that may execute and nothing else', () => {
  const get = (path: string, secret: string) => fetch(front.url + path, { headers: as(secret) })

  it('reads, follows and cancels the runs that it started', async () => {
    const secret = await keyWith([grantOf('execute')])
    const own = await startRun(secret)
    expect((await get(`/v1/executions/${own}`, secret)).status).toBe(200)
    expect((await get(`/v1/executions/${own}/output`, secret)).status).toBe(200)
    expect((await get(`/v1/executions/${own}/images/1`, secret)).status).toBe(404)
    expect((await front.post(`/v1/executions/${own}/cancel`, {}, as(secret))).status).toBe(200)
  })

  it('has no access to the runs of other keys of its organization', async () => {
    const secret = await keyWith([grantOf('execute')])
    const other = await startRun(unlimited)
    expect(await deniedIn(await get(`/v1/executions/${other}`, secret))).toBe('executions.read')
    expect(await deniedIn(await get(`/v1/executions/${other}/output`, secret))).toBe('executions.read')
    expect(await deniedIn(await get(`/v1/executions/${other}/images/1`, secret))).toBe('executions.read')
    expect(await deniedIn(await get('/v1/executions', secret))).toBe('executions.read')
    expect(await deniedIn(await front.post(`/v1/executions/${other}/cancel`, {}, as(secret)))).toBe('executions.cancel')
    expect((await get('/v1/executions/run_unknown', secret)).status).toBe(404)
    expect((await front.post(`/v1/executions/${other}/cancel`, {}, as(unlimited))).status).toBe(200)
  })
})

describe('a signed link', () => {
  it('is refused once its key has lost the capability that the link stands for', async () => {
    const { secret, id } = await createKey(front.core.adminContext, operator, org, { tools: null }, toolNames)
    await front.post('/v1/sandbox/execute', { language: 'bash', code: 'echo x >f', thread_id: 'linked' }, as(secret))
    const file = { source: 'thread', id: 'linked', path: 'f' }
    const link = async (kind: string, more: object) =>
      ((await (await front.post(`/v1/files/${kind}`, { ...file, ...more }, as(secret))).json()) as { url: string }).url
    const [download, upload] = [await link('download', {}), await link('upload', { size: 1, once: true })]
    expect((await fetch(download)).status).toBe(200)
    await front.store.keys.update(id, { tools: JSON.stringify([grantOf('execute')]) })
    expect(await deniedIn(await fetch(download))).toBe('files.read')
    expect(await deniedIn(await fetch(upload, { method: 'PUT', body: 'y' }))).toBe('files.write')
    await front.store.keys.update(id, { tools: null })
    expect((await fetch(upload, { method: 'PUT', body: 'y' })).status).toBe(200)
  })
})
