import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { type Place, program } from './glovebox.ts'

export interface Outcome {
  code: number
  stdout: string
  stderr: string
}

/** A key as its owner has it. */
export interface OwnKey {
  id: string
  secret: string
  /** What goes with each call. */
  headers: { authorization: string }
}

/** Runs `glovebox keys` in a place, as its operator would. @param as words before it, to be somebody else. */
export async function manageKeys(place: Place, words: readonly string[], as: readonly string[] = []): Promise<Outcome> {
  const own = [
    ...['--home', join(place.directory, 'home'), '--state-dir', join(place.directory, 'state')],
    ...['--front-uid', `${place.frontUid}`, '--front-gid', `${place.frontUid}`],
  ]
  const [command, ...args] = [...as, program, 'keys', ...words, ...own]
  const child = spawn(command!, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { PATH: process.env.PATH ?? '' } })
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
  return { code: code as number, stdout, stderr }
}

/** Makes a key in a place. @param words of `glovebox keys create` @throws Error with what it said instead. */
export async function newKey(place: Place, ...words: string[]): Promise<OwnKey> {
  const { code, stdout, stderr } = await manageKeys(place, ['create', ...words])
  const id = /key_[\w-]+/.exec(stderr)?.[0]
  if (code !== 0 || id === undefined) throw new Error(`no key: ${code} ${stderr}`)
  const secret = stdout.trim()
  return { id, secret, headers: { authorization: `Bearer ${secret}` } }
}
