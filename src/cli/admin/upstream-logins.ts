/** `glovebox upstreams login`, `logout` and `credentials`: tokens for MCP servers that require a login. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Refusal } from '../../base/errors.ts'
import { operator } from '../../core/admin/admin.ts'
import {
  type CredentialView,
  completeUpstreamLogin,
  listUpstreamCredentials,
  loginToUpstream,
  removeUpstreamCredential,
} from '../../core/admin/upstream-logins.ts'
import { refreshUpstream, type UpstreamRef } from '../../core/admin/upstreams.ts'
import type { LoginInstructions } from '../../core/upstreams/logins.ts'
import { type Columns, printItems } from '../output.ts'
import { interruptedCode } from '../process-io.ts'
import { type AdminSession, refOf, usageError } from './context.ts'
import { listenForRedirect, pastedAddress } from './redirects.ts'

interface LoginOptions {
  org: string
  device?: boolean
  port?: string
}

/** Logs in, and reads the tools of the upstream with the new tokens. */
export async function login(session: AdminSession, name: string, options: LoginOptions): Promise<number | undefined> {
  const { stop } = session.io
  const port = Number(options.port ?? 0)
  if (!Number.isInteger(port) || port < 0 || port > 65_535) return usageError('--port must be a port', session.io)
  const ref = await refOf(session, name, options)
  const isComplete = options.device ? await byDevice(session, ref) : await byBrowser(session, ref, port)
  if (!isComplete) return stop.aborted ? interruptedCode(stop) : usageError('the login took too long', session.io)
  session.notify(`Logged in to ${name}.`)
  session.printResult(await refreshUpstream(session, operator, ref), '')
  return undefined
}

async function byBrowser(session: AdminSession, ref: UpstreamRef, port: number): Promise<boolean> {
  const listener = await listenForRedirect(port)
  const done = new AbortController()
  try {
    const { redirectUri } = listener
    const instructions = await loginToUpstream(session, operator, ref, { kind: 'browser', redirectUri })
    const { stdin, stderr } = session.io
    stderr.write(`Open this link, and log in:\n\n  ${instructions.url}\n\n`)
    stderr.write('If the browser runs on another machine, paste the address that it ends at here.\n')
    const state = new URL(instructions.url).searchParams.get('state') ?? ''
    const redirectedTo = await Promise.race([
      listener.redirected(state),
      pastedAddress(stdin, done.signal),
      ended(session, instructions, done.signal),
    ])
    return redirectedTo !== undefined && (await completeUpstreamLogin(session, operator, ref, redirectedTo))
  } finally {
    done.abort()
    listener.close()
  }
}

async function byDevice(session: AdminSession, ref: UpstreamRef): Promise<boolean> {
  const { stderr, stop } = session.io
  const { url, userCode, expiresAtMs, pollIntervalMs } = await loginToUpstream(session, operator, ref, {
    kind: 'device',
  })
  stderr.write(`Open this link on any device, and log in:\n\n  ${url}\n\n`)
  if (userCode !== null) stderr.write(`Enter the code ${userCode} there.\n`)
  while (!stop.aborted && Date.now() < expiresAtMs) {
    await sleep(pollIntervalMs ?? 0, undefined, { signal: stop }).catch(() => {})
    if (!stop.aborted && (await completeUpstreamLogin(session, operator, ref, undefined))) return true
  }
  return false
}

/** Resolves with `undefined` when a login has expired or the command is stopped. */
async function ended(
  { io: { stop } }: AdminSession,
  { expiresAtMs }: LoginInstructions,
  done: AbortSignal,
): Promise<undefined> {
  const signal = AbortSignal.any([stop, done])
  await sleep(expiresAtMs - Date.now(), undefined, { signal }).catch(() => {})
  return undefined
}

const columns: Columns<CredentialView> = {
  KEY: ({ key_id }) => key_id ?? 'shared',
  KIND: ({ kind }) => kind,
  ISSUER: ({ issuer }) => issuer ?? '-',
  EXPIRES: ({ expires_at }) => expires_at ?? '-',
  RENEWS: ({ kind, renews }) => (kind === 'oauth' ? String(renews) : '-'),
  PROBLEM: ({ problem }) => problem ?? '-',
}

export async function credentials(session: AdminSession, name: string, options: { org: string; json?: boolean }) {
  const items = await listUpstreamCredentials(session, operator, await refOf(session, name, options))
  printItems(items, columns, options, session.io)
  return undefined
}

export async function logout(session: AdminSession, name: string, options: { org: string; key?: string }) {
  const ref = await refOf(session, name, options)
  const key = options.key ?? null
  const stored = await listUpstreamCredentials(session, operator, ref)
  if (!stored.some(({ key_id }) => key_id === key)) {
    throw new Refusal('not_found', { what: key === null ? `The login to ${name}` : `The credential of the key ${key}` })
  }
  await removeUpstreamCredential(session, operator, ref, key)
  session.printResult({ name, state: 'logged_out' }, '')
  return undefined
}
