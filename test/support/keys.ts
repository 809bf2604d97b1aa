import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import type { Place } from './glovebox.ts'

export interface Outcome {
  code: number
  stdout: string
  stderr: string
}

/** A key with its secret. */
export interface OwnKey {
  id: string
  secret: string
  /** Headers for each call with the key. */
  headers: { authorization: string }
}

/** Runs a command in a place, as an operator would. @param as a command prefix, to run it as another user. */
export async function runCommand(place: Place, words: readonly string[], as: readonly string[] = []): Promise<Outcome> {
  const own = [
    ...['--home', join(place.directory, 'home'), '--state-dir', join(place.directory, 'state')],
    ...['--front-uid', `${place.frontUid}`, '--front-gid', `${place.frontUid}`],
  ]
  // What follows `--` belongs to the program of an upstream.
  const at = words.includes('--') ? words.indexOf('--') : words.length
  const [command, ...args] = [...as, place.program, ...words.slice(0, at), ...own, ...words.slice(at)]
  const child = spawn(command!, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { PATH: process.env.PATH ?? '' } })
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
  return { code: code as number, stdout, stderr }
}

/** Runs `glovebox keys` in a place. */
export const manageKeys = (place: Place, words: readonly string[], as: readonly string[] = []): Promise<Outcome> =>
  runCommand(place, ['keys', ...words], as)

/** Creates a key in a place. @param words arguments of `glovebox keys create` @throws Error with its output when that fails. */
export async function newKey(place: Place, ...words: string[]): Promise<OwnKey> {
  const { code, stdout, stderr } = await manageKeys(place, ['create', ...words])
  const id = /key_[\w-]+/.exec(stderr)?.[0]
  if (code !== 0 || id === undefined) throw new Error(`no key: ${code} ${stderr}`)
  const secret = stdout.trim()
  return { id, secret, headers: { authorization: `Bearer ${secret}` } }
}
