/**
 * The foreign programs that these tests run, in a cache of their own: build/clients/<name>. They are not dependencies of
 * the project, whose lockfile they would multiply.
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)
const cache = join(import.meta.dirname, '../../build/clients')

interface Pinned {
  from: 'npm' | 'PyPI'
  packages: readonly string[]
}

/** Every client with the exact versions that are tested. Those of one entry are installed together. */
export const pinned = {
  'claude-code': { from: 'npm', packages: ['@anthropic-ai/claude-code@2.1.332'] },
  codex: { from: 'npm', packages: ['@openai/codex@0.171.0'] },
  'gemini-cli': { from: 'npm', packages: ['@google/gemini-cli@0.61.0'] },
  // Only the program for this machine: the packages that lead to it contain further ones.
  opencode: { from: 'npm', packages: [`opencode-linux-${process.arch}@1.18.33`] },
  cline: { from: 'npm', packages: [`@cline/cli-linux-${process.arch}@3.0.65`] },
  goose: { from: 'npm', packages: [`@aaif/goose-binary-linux-${process.arch}@0.20.1`] },
  continue: { from: 'npm', packages: ['@continuedev/cli@1.5.47', '@continuedev/config-yaml@1.42.0'] },
  librechat: { from: 'npm', packages: ['librechat-data-provider@0.8.524'] },
  'openai-agents': { from: 'npm', packages: ['@openai/agents@0.20.0', 'zod@4.1.13'] },
  mastra: { from: 'npm', packages: ['@mastra/mcp@2.0.0'] },
  'mcp-use': { from: 'npm', packages: ['mcp-use@1.34.6', 'zod@4.1.13'] },
  'mcp-proxy': { from: 'npm', packages: ['mcp-proxy@6.7.19'] },
  supergateway: { from: 'npm', packages: ['supergateway@4.0.0'] },
  'python-mcp-2': {
    from: 'PyPI',
    packages: [
      ...['mcp==2.3.0', 'fastmcp==4.2.3', 'agno==3.1.10', 'openai==3.57.0'],
      ...['baponi==0.5.1', 'requests==2.34.2'],
    ],
  },
  'python-mcp-1': { from: 'PyPI', packages: ['langchain-mcp-adapters==0.3.2', 'mcp==1.30.0'] },
} as const satisfies Record<string, Pinned>

export type ClientName = keyof typeof pinned

/** How long an installation may take on a busy machine, in ms. */
export const installWithinMs = 300_000

const entryOf = (name: ClientName): Pinned => pinned[name]

/** The directory of an installation. Its name has the versions, so that another version is another directory. */
const directoryOf = (name: ClientName): string => {
  const versions = entryOf(name).packages.map((spec) => spec.replace(/^.*[@=]/, ''))
  return join(cache, `${name}@${versions.join('+')}`)
}

/** The path of an installed file. */
export const installed = (name: ClientName, ...path: string[]): string => join(directoryOf(name), ...path)

/** Whether a client is in the cache or can be installed. Asks each registry at most once. */
export async function isAvailable(name: ClientName): Promise<boolean> {
  return existsSync(directoryOf(name)) || (await isReachable(entryOf(name).from))
}

const asked = new Map<Pinned['from'], Promise<boolean>>()

function isReachable(from: Pinned['from']): Promise<boolean> {
  const answer = asked.get(from) ?? askRegistry(from)
  asked.set(from, answer)
  return answer
}

/** Asks for one small package, as the installation would. */
async function askRegistry(from: Pinned['from']): Promise<boolean> {
  const [program, ...words] =
    from === 'npm'
      ? ['npm', 'view', 'is-number@7.0.0', 'version', '--fetch-retries=1', '--fetch-timeout=15000']
      : ['python3', '-m', 'pip', 'index', 'versions', '--retries=1', '--timeout=15', 'six']
  return execute(program!, words).then(
    () => true,
    () => false,
  )
}

/** Installs a client, unless it is in the cache. @throws Error with the output of the installer. */
export async function install(name: ClientName): Promise<void> {
  const directory = directoryOf(name)
  if (existsSync(directory)) return
  await mkdir(cache, { recursive: true })
  const unfinished = await mkdtemp(join(cache, 'unfinished-'))
  try {
    await (entryOf(name).from === 'npm' ? npmInstall : pipInstall)(unfinished, entryOf(name).packages)
    await rename(unfinished, directory)
  } finally {
    await rm(unfinished, { recursive: true, force: true })
  }
}

/** Parts of mcp-use that its client does not import, half a gigabyte with what they depend on. */
const unused = Object.fromEntries(
  ['@mcp-use/cli', '@mcp-use/inspector', 'posthog-js'].map((name) => [name, 'npm:empty-npm-package@1.0.0']),
)

/** Without install scripts, and without leaving a second copy in the cache of npm. */
async function npmInstall(directory: string, packages: readonly string[]): Promise<void> {
  await writeFile(join(directory, 'package.json'), JSON.stringify({ private: true, overrides: unused }))
  const npmCache = join(directory, '.npm-cache')
  const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock', '--loglevel=error']
  await execute('npm', ['install', ...flags, '--cache', npmCache, ...packages], { cwd: directory })
  await rm(npmCache, { recursive: true, force: true })
}

/** Into a virtual environment. Its programs name their directory, so they are started as `python -m`. */
async function pipInstall(directory: string, packages: readonly string[]): Promise<void> {
  await execute('python3', ['-m', 'venv', directory])
  const flags = ['--quiet', '--no-cache-dir', '--no-compile', '--disable-pip-version-check']
  await execute(join(directory, 'bin/python'), ['-m', 'pip', 'install', ...flags, ...packages])
}
