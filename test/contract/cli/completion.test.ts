import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runProgram } from '../../../src/cli/program.ts'
import { withCommandIo } from '../../support/command-io.ts'

let directory: string
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'glovebox-completion-'))
  writeFileSync(join(directory, 'analysis.py'), '')
})
afterAll(() => rmSync(directory, { recursive: true }))

const glovebox = (...words: string[]) => withCommandIo((io) => runProgram(words, io))

const scriptOf = async (shell: string): Promise<string> => (await glovebox('completion', shell)).stdout.toString()

describe('the completion script for bash', () => {
  let script: string
  beforeAll(async () => {
    script = join(directory, 'completion.bash')
    writeFileSync(script, await scriptOf('bash'))
  })

  /** Completes the last word as bash does. `compopt` works only while bash itself completes. */
  const complete = (...words: string[]): string[] => {
    const code = `compopt() { :; }; source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _glovebox; printf '%s\\n' "\${COMPREPLY[@]}"`
    const text = execFileSync('bash', ['--norc', '-c', code, script, 'glovebox', ...words], { cwd: directory })
    return text.toString().split('\n').filter(Boolean)
  }

  it('completes commands at every level', () => {
    expect(complete('ru')).toEqual(['run', 'runs'])
    expect(complete('runs', '')).toEqual(['ls', 'show', 'logs', 'cancel', 'help'])
    expect(complete('threads', '--url', 'http://127.0.0.1:1', 'f')).toEqual(['fork'])
    expect(complete('keys', 'list', '')).toEqual([])
  })

  it('completes options, and files where a command or option takes them', () => {
    expect(complete('run', '--thr')).toEqual(['--thread'])
    expect(complete('runs', 'logs', '--fol')).toEqual(['--follow'])
    expect(complete('run', 'ana')).toEqual(['analysis.py'])
    expect(complete('run', 'x.py', '--stdin', 'ana')).toEqual(['analysis.py'])
    expect(complete('run', '--thread', 'ana')).toEqual([])
    expect(complete('status', 'ana')).toEqual([])
  })

  it('knows nothing that the help does not list', () => {
    expect(complete('front')).toEqual([])
    expect(complete('doctor-')).toEqual([])
  })
})

describe('the completion scripts for other shells', () => {
  it.each(['zsh', 'fish'])('contain every command and option for %s', async (shell) => {
    const script = await scriptOf(shell)
    for (const word of ['runs', 'logs', 'threads', 'completion', 'follow', 'key-file', 'webhook-secret']) {
      expect(script).toContain(word)
    }
    expect(script).not.toContain('doctor-inside')
  })

  it('exist for known shells only', async () => {
    const { code, stderr } = await glovebox('completion', 'cmd')
    expect([code, stderr]).toEqual([64, 'glovebox completion: use bash, zsh, fish instead of cmd\n'])
  })
})

describe('every command', () => {
  /** Those that print no result of their own: they serve, give a terminal to a program, or print a script. */
  const withoutJson = ['serve', 'sandbox shell', 'stdio', 'completion']

  it('prints JSON on request', async () => {
    const lines = (await scriptOf('bash')).matchAll(/^ {4}'(.*)'\) commands='(.*)' options='(.*)' files=/gm)
    const commands = [...lines].map(([, path = '', children = '', options = '']) => ({ path, children, options }))
    const silent = commands.filter(({ children, options }) => children === '' && !options.includes('--json'))
    expect(silent.map(({ path }) => path).filter((path) => !path.endsWith('help'))).toEqual(withoutJson)
    expect(commands.length).toBeGreaterThan(50)
  })
})

describe('a misspelled command or option', () => {
  it.each([
    [['rnu'], 'run'],
    [['runs', 'lgos', 'x'], 'logs'],
    [['run', 'x.py', '--tread', 't'], '--thread'],
    [['pusj', 'x'], 'push'],
  ])('%j suggests %s', async (words, suggestion) => {
    const { code, stderr } = await glovebox(...words)
    expect([code, stderr]).toEqual([64, expect.stringContaining(suggestion)])
  })
})
