import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)
const cache = join(import.meta.dirname, '../../build/foreign')

/** Packages that a test uses, with their exact versions. They are not dependencies of the project. */
export interface Packages {
  from: 'npm' | 'PyPI'
  specs: readonly string[]
}

/** How long an installation may take on a busy machine, in ms. */
export const installWithinMs = 300_000

/** The directory of an installation. Its name has the versions, so that another version is another directory. */
export const directoryOf = ({ specs }: Packages): string =>
  join(cache, specs.map((spec) => spec.replaceAll(/[^\w.-]+/g, '_')).join('+'))

/** Whether packages are in the cache or their registry can be reached. */
export async function isAvailable(packages: Packages): Promise<boolean> {
  if (existsSync(directoryOf(packages))) return true
  const [program, ...words] =
    packages.from === 'npm'
      ? ['npm', 'view', packages.specs[0]!, 'version', '--fetch-retries=1', '--fetch-timeout=15000']
      : ['python3', '-m', 'pip', 'index', 'versions', '--retries=1', '--timeout=15', packages.specs[0]!.split('==')[0]!]
  return execute(program!, words).then(
    () => true,
    () => false,
  )
}

/** Installs packages, unless they are in the cache. @returns their directory. @throws Error of the installer. */
export async function install(packages: Packages): Promise<string> {
  const directory = directoryOf(packages)
  if (existsSync(directory)) return directory
  await mkdir(cache, { recursive: true })
  const unfinished = await mkdtemp(join(cache, 'unfinished-'))
  try {
    await (packages.from === 'npm' ? npmInstall : pipInstall)(unfinished, packages.specs)
    await rename(unfinished, directory)
  } finally {
    await rm(unfinished, { recursive: true, force: true })
  }
  return directory
}

/** Without install scripts, and without leaving a second copy in the cache of npm. */
async function npmInstall(directory: string, specs: readonly string[]): Promise<void> {
  await writeFile(join(directory, 'package.json'), '{ "private": true, "type": "module" }')
  const npmCache = join(directory, '.npm-cache')
  const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock', '--loglevel=error']
  await execute('npm', ['install', ...flags, '--cache', npmCache, ...specs], { cwd: directory })
  await rm(npmCache, { recursive: true, force: true })
}

/** Into a virtual environment. Its programs name their directory, so they are started as `python -m`. */
async function pipInstall(directory: string, specs: readonly string[]): Promise<void> {
  await execute('python3', ['-m', 'venv', directory])
  const flags = ['--quiet', '--no-cache-dir', '--no-compile', '--disable-pip-version-check']
  await execute(join(directory, 'bin/python'), ['-m', 'pip', 'install', ...flags, ...specs])
}
