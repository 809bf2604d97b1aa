/** Runs programs on the machine itself, as a file in a directory that is their home. */
import { spawn } from 'node:child_process'
import { chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { programCopies } from '../../src/base/program-copy.ts'
import type { Language } from '../../src/base/run.ts'
import { fixedEnv, imagePath } from '../../src/engine/jails/languages.ts'
import type { Program } from './corpus.ts'

export interface Seen {
  stdout: string
  /** Without stack frames, which show how each interpreter was started. */
  stderr: string
  code: number | null
}

const commands: Record<Language, readonly string[]> = {
  python: ['/usr/bin/python3', '-u'],
  node: [process.execPath],
  typescript: [process.execPath],
  bash: ['/usr/bin/bash'],
}

/** No user of the machine: nobody. */
const nobody = 65534

export async function runBare({ language, code }: Program): Promise<Seen> {
  const home = mkdtempSync(join(tmpdir(), 'glovebox-bare-'))
  try {
    chownSync(home, nobody, nobody)
    const file = join(home, programCopies[language])
    writeFileSync(file, code)
    const env = { ...fixedEnv, HOME: home, PATH: `${dirname(process.execPath)}:${imagePath}` }
    const [program = '', ...words] = commands[language]
    const child = spawn(program, [...words, file], {
      cwd: home,
      env,
      uid: nobody,
      gid: nobody,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const [stdout, stderr, code_] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      new Promise<number | null>((resolve) => child.on('close', resolve)),
    ])
    return seenAs({ stdout, stderr, code: code_ }, home)
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
}

/** Replaces what is named differently in a sandbox: the home, and the file of a program that does not ask for it. */
export function seenAs({ stdout, stderr, code }: Seen, home: string): Seen {
  const plain = (said: string) =>
    said
      .replaceAll(home, '/home/baponi')
      .replaceAll(/(?:file:\/\/)?\/[\w./-]*main\.(?:py|js|ts|sh)|\[(?:stdin|eval1?)\]/g, 'MAIN')
  const lines = plain(stderr).split('\n')
  return { stdout: plain(stdout), stderr: lines.filter((line) => !/^ +at |^$/.test(line)).join('\n'), code }
}
