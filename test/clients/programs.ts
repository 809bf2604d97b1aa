/** Starts the programs of the clients, each with a home of its own and nothing of the environment of the tests. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { type ClientName, installed } from './packages.ts'

/** Longer than any session takes on a busy machine, in ms. */
export const sessionWithinMs = 240_000

const directory = join(import.meta.dirname, 'programs')

/** A program of test/clients/programs that imports the packages of a client: Node.js looks for them beside the program. */
export function nodeProgram(client: ClientName, file: string): [string, string] {
  for (const name of readdirSync(directory).filter((each) => each.endsWith('.mjs')))
    copyFileSync(join(directory, name), installed(client, name))
  return [process.execPath, installed(client, file)]
}

export const pythonProgram = (client: ClientName, file: string): [string, ...string[]] => [
  installed(client, 'bin/python'),
  '-B',
  join(directory, file),
]

export interface ProgramOptions {
  home: string
  directory: string
  /** A proxy for everything outside of this machine, which refuses it. */
  proxy: string
  env?: Readonly<Record<string, string>> | undefined
  input?: object | undefined
}

/** Runs a program to its end. @returns what it printed. */
export async function runProgram(
  [program, ...words]: readonly [string, ...string[]],
  { home, directory: cwd, proxy, env, input }: ProgramOptions,
): Promise<{ out: string; err: string }> {
  const child = spawn(program, words, {
    cwd,
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: sessionWithinMs,
    env: {
      PATH: process.env.PATH,
      HOME: home,
      TMPDIR: home,
      NO_COLOR: '1',
      HTTP_PROXY: proxy,
      HTTPS_PROXY: proxy,
      NO_PROXY: '127.0.0.1,localhost',
      ...env,
    },
  })
  child.stdin.on('error', () => undefined)
  child.stdin.end(input && JSON.stringify(input))
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  return { out, err }
}
