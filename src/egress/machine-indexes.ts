import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)

/** A package manager that needs longer is broken. */
const withinMs = 60_000
const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** Prints what pip uses where nothing is configured: its index, and where that keeps files. */
const pipDefaults =
  'from pip._internal.models.index import PyPI as i; print(i.simple_url, "https://" + i.file_storage_domain)'

/**
 * Returns the package indexes that pip, npm and apt of this machine are configured with, as rules of a policy. What is not
 * installed has none.
 */
export async function machineIndexes(): Promise<readonly string[]> {
  const [pip, npm, apt] = await Promise.all([ofPip(), printed('npm', 'config', 'get', 'registry'), ofApt()])
  return [...new Set(`${pip}\n${npm}\n${apt}`.match(/\bhttps?:\/\/[^\s'"<>]+/g)?.flatMap(toRule))]
}

async function ofPip(): Promise<string> {
  const written = await printed('python3', '-m', 'pip', 'config', 'list')
  return /\bindex-url=/.test(written) ? written : `${written}\n${await printed('python3', '-c', pipDefaults)}`
}

async function ofApt(): Promise<string> {
  const parts = '/etc/apt/sources.list.d'
  const names = await readdir(parts).catch(() => [])
  const files = names.filter((name) => /\.(?:list|sources)$/.test(name)).map((name) => join(parts, name))
  const texts = ['/etc/apt/sources.list', ...files].map((file) => readFile(file, 'utf8').catch(() => ''))
  return (await Promise.all(texts)).join('\n').replace(/^\s*#.*$/gm, '')
}

async function printed(program: string, ...args: string[]): Promise<string> {
  const options = { timeout: withinMs, env: { PATH: path, HOME: '/root' }, cwd: '/' }
  return execute(program, args, options).then(
    ({ stdout }) => stdout,
    () => '',
  )
}

function toRule(written: string): string[] {
  if (!URL.canParse(written)) return []
  const { hostname, port } = new URL(written)
  return hostname === '' ? [] : [port === '' ? hostname : `${hostname}:${port}`]
}
