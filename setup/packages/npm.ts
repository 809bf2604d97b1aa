/**
 * Builds the npm package in `build/package`, with JavaScript instead of TypeScript, which Node.js does not run below
 * `node_modules`. The guest and the addon are included as they were built for this machine, and so are the packages that
 * the program imports, in the versions of the lock file. Prints the path of the archive.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

const root = join(import.meta.dirname, '../..')
const target = join(root, 'build/package')

/** Directories of packages that are for their developers. */
const unused =
  /\/node_modules\/(?:@[^/]+\/)?[^@/]+\/(?:tests?|integration|scripts|benchmarks?|examples?|docs?)$|\/node_modules\/.*\.sh$/

/** What browsers load. */
const browserFiles = [
  ...['src/http/page/browser.js', 'src/http/page/page.css', 'src/http/console/console.css'],
  ...['src/http/console/browser.js', 'src/http/console/elements.js', 'src/http/console/views.js'],
]

interface Lock {
  packages: Record<string, { dev?: boolean; devOptional?: boolean; optional?: boolean }>
}

const readJson = (path: string) => JSON.parse(readFileSync(join(root, path), 'utf8'))

rmSync(target, { recursive: true, force: true })
execFileSync(join(root, 'node_modules/.bin/tsc'), ['--project', join(import.meta.dirname, 'tsconfig.json')], {
  stdio: ['ignore', 2, 2],
})
copyFiles()
writeFileSync(join(target, 'build/platform'), `${process.platform}-${process.arch}\n`)
writeFileSync(join(target, 'package.json'), `${JSON.stringify(manifest(), null, 2)}\n`)
const packed = execFileSync('npm', ['pack', '--silent', '--pack-destination', join(root, 'build')], { cwd: target })
console.log(join(root, 'build', packed.toString().trim()))

/** Copies what the program reads and imports besides its own code. */
function copyFiles(): void {
  const files = ['README.md', 'LICENSE', 'bin', 'docs', 'deploy', ...browserFiles]
  const built = ['build/guest', 'build/kernel.node', 'build/python-zygote.so']
  const guest = ['images', 'kernels', 'node', 'workspace', 'python/figures.py'].map((name) => `guest/${name}`)
  for (const path of [...files, ...built, ...guest, ...packagesOfProgram()]) {
    mkdirSync(dirname(join(target, path)), { recursive: true })
    cpSync(join(root, path), join(target, path), { recursive: true, filter: isNeeded })
  }
  for (const path of packagesOfProgram()) removeCommands(join(target, path))
}

/** Types, source maps and documentation of packages are more than half of all files, and nothing reads them. */
function isNeeded(path: string): boolean {
  const name = basename(path)
  if (/\.(?:map|ts|mts|cts)$/.test(name)) return false
  if (unused.test(path)) return false
  return !path.includes('/node_modules/') || /licen[cs]e/i.test(name) || !/^\.|\.(?:md|markdown|html)$/.test(name)
}

/** Removes the commands of a package that nothing starts. */
function removeCommands(directory: string): void {
  const { bin = {} } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'))
  for (const path of typeof bin === 'string' ? [bin] : Object.values<string>(bin)) {
    // A directory of commands also has what only they import.
    const isAmongCommands = /^(?:\.\/)?bin\//.test(path)
    rmSync(join(directory, isAmongCommands ? 'bin' : path), { recursive: isAmongCommands, force: isAmongCommands })
  }
}

/** The directories of the packages that the program imports, directly or through others. */
function packagesOfProgram(): string[] {
  const { packages } = readJson('package-lock.json') as Lock
  return Object.entries(packages)
    .filter(([path, { dev, devOptional, optional }]) => path !== '' && !dev && !devOptional && !optional)
    .map(([path]) => path)
    .filter((path) => existsSync(join(root, path)))
}

function manifest(): object {
  const { name, version, description, license, type, engines, dependencies, optionalDependencies } =
    readJson('package.json')
  const bundleDependencies = Object.keys(dependencies)
  const bin = { glovebox: 'bin/glovebox.cjs' }
  const about = { name, version, description, license, type, engines, bin }
  return { ...about, dependencies, optionalDependencies, bundleDependencies }
}
